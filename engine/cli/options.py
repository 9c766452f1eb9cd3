"""What all commands share: --db, --json and --fresh, the kinds of arguments, and the way to the store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from sessiondb.cli.output import say
from sessiondb.cli.printable import counted
from sessiondb.cli.progress import progress_bar
from sessiondb.cli.times import age
from sessiondb.connection import default_path
from sessiondb.errors import DatabaseUnavailableError, ReadOnlyError
from sessiondb.jsonl import format_time
from sessiondb.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Settings:
    """The options that stand before or after the command."""

    db: str | None = None
    json: bool = False

    @property
    def database(self) -> Path:
        """The one database that this run is about."""
        return Path(self.db).expanduser() if self.db else default_path()


class TextType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Text that SQLite can hold: no bytes that are no UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            str(value).encode()
        except UnicodeEncodeError:
            self.fail("holds bytes that are no UTF-8", param, ctx)
        return str(value)


class PathType(click.ParamType):  # type: ignore[type-arg]
    """A path, of any bytes; `~` may stand for a home folder that exists."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            Path(value).expanduser()
        except RuntimeError:
            self.fail(f"{value}: there is no such user's home folder", param, ctx)
        return str(value)


TEXT = TextType()
PATH = PathType()


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value and param.name:
        setattr(settings, param.name, value)


def common(command: Command) -> Command:
    """Give a command --db and --json; the values are in the Settings that `click.pass_obj` passes."""
    json = click.option("--json", is_flag=True, expose_value=False, callback=_remember, help="Print one JSON document.")
    db = click.option("--db", type=PATH, metavar="PATH", expose_value=False, callback=_remember,
                      help="The database file.")  # fmt: skip
    return db(json(command))


def reads(command: Command) -> Command:
    """Give a command that reads --fresh, and what `common` gives."""
    fresh = click.option("--fresh", is_flag=True, help="First take in what grew or came under the imported folders.")
    return common(fresh(command))


def takes_ndjson(command: Command) -> Command:
    """Give a command with a long list --ndjson."""
    return click.option("--ndjson", is_flag=True, help="Print one JSON object a line.")(command)


@contextmanager
def reading(settings: Settings, *, fresh: bool) -> Iterator[Store]:
    """The store for a command that reads. What it says about the data's age goes to stderr, and nowhere with --json.

    A database that is missing is an error: nobody wants an empty answer, or a file made by a typing mistake.
    """
    path = settings.database
    if not os.path.lexists(path):
        raise DatabaseUnavailableError(f"{path} does not exist; `sessiondb import` makes it, --db names another")
    with _open_to_read(path, by_writing=fresh) as store:
        if fresh:
            _refresh(store, quiet=settings.json)
        elif not settings.json:
            say(f"{_how_old(store)}; --fresh looks again ({path})")
        yield store


def _open_to_read(path: Path, *, by_writing: bool) -> Store:
    if not by_writing:
        try:
            return Store.open(path, read_only=True)  # never waits for a writer
        except ReadOnlyError:
            pass  # of an older version: opening it for writing upgrades it
    return Store.open(path)


def _refresh(store: Store, *, quiet: bool) -> None:
    with progress_bar() as on_progress:
        report = store.refresh(on_progress=on_progress)
    if not quiet:
        news = f"{report.imported:,} new, {report.updated:,} grown, {len(report.skipped):,} skipped"
        say(f"looked at {counted(report.files, 'file')}: {news} ({store.database})")


def _how_old(store: Store) -> str:
    looked = store.last_look_ms()
    return "nothing was imported yet" if looked is None else f"as of {age(looked)}"


def as_of(store: Store) -> str | None:
    """When files were last looked at, as ISO text; None before the first import."""
    looked = store.last_look_ms()
    return None if looked is None else format_time(looked)


@contextmanager
def writing(settings: Settings) -> Iterator[Store]:
    """The store for a command that writes; a missing database is made."""
    with Store.open(settings.database) as store:
        yield store


@contextmanager
def rehearsing(settings: Settings) -> Iterator[Store]:
    """The store for a dry run: the database, or while there is none an empty one that goes away afterwards."""
    if os.path.lexists(settings.database):
        with _open_to_read(settings.database, by_writing=False) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="sessiondb-") as folder, Store.open(Path(folder, "dry-run.db")) as store:
        yield store


def print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version, for --version."""
    if value:
        from importlib.metadata import version  # costs more than the rest of the command

        click.echo(f"sessiondb {version('sessiondb')}")
        ctx.exit()
