"""`sessiondb history`: one's own prompts: the newest, those with some words, added, taken in, forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from sessiondb.cli.listing import absolute_cwd
from sessiondb.cli.options import PATH, TEXT, Command, Settings, common, reading, takes_ndjson, writing
from sessiondb.cli.output import on_terminal, put, put_json, say
from sessiondb.cli.printable import counted, cut, one_line, with_tilde
from sessiondb.cli.table import Column, table
from sessiondb.cli.times import full_time, short_time
from sessiondb.history import DEFAULT_LIMIT, LONGEST, Prompts

TERMINAL_LIMIT: Final = 20

COLUMNS: Final = (
    Column("id", right=True),
    Column("when"),
    Column("prompt", least=20),
    Column("cwd", least=8, keep_end=True),
)


def _narrowing(command: Command) -> Command:
    limit = click.option("--limit", type=click.IntRange(min=0), metavar="N",
                         help=f"At most so many, and {LONGEST:,} (on a terminal 20, else 100).")  # fmt: skip
    cwd = click.option("--cwd", type=TEXT, metavar="PATH", help="Only from this working directory.")
    session = click.option("--session", type=TEXT, metavar="ID", help="Only from the session of this id.")
    return limit(cwd(session(takes_ndjson(common(command)))))


@click.group("history", invoke_without_command=True, short_help="The prompts that were typed.")
@_narrowing
@click.pass_context
def command(
    ctx: click.Context, limit: int | None, cwd: str | None, session: str | None, ndjson: bool
) -> None:  # fmt: skip
    """The prompts that were typed, newest first."""
    if ctx.invoked_subcommand is None:
        settings = ctx.ensure_object(Settings)
        with reading(settings, fresh=False) as store:
            found = store.history.get_recent(_limit(limit), cwd=absolute_cwd(cwd), session_id=session)
        _print(settings, found, ndjson=ndjson)


@command.command("search")
@click.argument("text", type=TEXT, nargs=-1, required=True)
@_narrowing
@click.pass_obj
def search(
    settings: Settings, text: tuple[str, ...], limit: int | None, cwd: str | None, session: str | None, ndjson: bool
) -> None:  # fmt: skip
    """Those in which every word of TEXT begins a word, newest first."""
    with reading(settings, fresh=False) as store:
        found = store.history.search(" ".join(text), _limit(limit), cwd=absolute_cwd(cwd), session_id=session)
    _print(settings, found, ndjson=ndjson)


@command.command("add")
@click.argument("prompt", type=TEXT)
@click.option("--cwd", type=TEXT, metavar="PATH", help="Where it was typed.")
@click.option("--session", type=TEXT, metavar="ID", help="In which session.")
@common
@click.pass_obj
def add(settings: Settings, prompt: str, cwd: str | None, session: str | None) -> None:
    """Remember a prompt, unless it is blank or the same as the newest one."""
    with writing(settings) as store:
        store.history.add(prompt, cwd=absolute_cwd(cwd), session_id=session)


@command.command("import")
@click.argument("file", type=PATH)
@common
@click.pass_obj
def take_in(settings: Settings, file: str) -> None:
    """Take in an agent's history.db, which is only read; the agent may be running."""
    from sessiondb.history_import import import_history

    with writing(settings) as store:
        report = import_history(store, Path(file).expanduser())
    _print_report(settings, report.to_dict())


@command.command("backfill")
@common
@click.pass_obj
def backfill(settings: Settings) -> None:
    """Take in what users said in the sessions that are held."""
    from sessiondb.history_import import backfill_history

    with writing(settings) as store:
        report = backfill_history(store)
    _print_report(settings, report.to_dict())


@command.command("forget")
@click.argument("prompt", type=TEXT)
@click.option("--text", "is_text", is_flag=True, help="PROMPT is the text itself, even if it is a number.")
@common
@click.pass_context
def forget(ctx: click.Context, prompt: str, is_text: bool) -> None:
    """Remove a prompt, by its id or its exact text, with its index entry and its bytes.

    What sessions hold of it stays.
    """
    settings = ctx.ensure_object(Settings)
    with writing(settings) as store:
        count = store.history.forget(int(prompt) if prompt.isdecimal() and not is_text else prompt)
    if settings.json:
        put_json({"forgotten": count})
    else:
        say(f"{counted(count, 'prompt')} forgotten")
    if not count:
        ctx.exit(1)


def _limit(limit: int | None) -> int:
    return limit if limit is not None else TERMINAL_LIMIT if on_terminal() else DEFAULT_LIMIT


def _print(settings: Settings, found: Prompts, *, ndjson: bool) -> None:
    if ndjson:
        for prompt in found:
            put_json(prompt.to_dict())
    elif settings.json:
        put_json({"prompts": [prompt.to_dict() for prompt in found], "cut": found.cut})
    elif found:
        when = short_time if on_terminal() else full_time
        rows = [
            (str(p.id), when(p.created_at * 1000), one_line(p.prompt), cut(with_tilde(p.cwd or ""), 30, keep_end=True))
            for p in found
        ]
        put(table(COLUMNS, rows))
    if not settings.json:
        if not found:
            say("no prompt")
        elif found.cut:
            say(f"the newest {len(found):,}; there are more, --limit shows up to {LONGEST:,}")


def _print_report(settings: Settings, report: dict[str, object]) -> None:
    if settings.json:
        put_json(report)
    else:
        put(f"{name:8} {value}" for name, value in report.items())
