"""`sessiondb show`: what is known of one session, its entries, its faults, or one entry's bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import click

from sessiondb.cli.entry_lines import entry_lines
from sessiondb.cli.later_branch import later_branch_object, say_later_branch
from sessiondb.cli.options import PATH, TEXT, Settings, as_of, reading, reads, takes_ndjson
from sessiondb.cli.output import BOLD, on_terminal, put, put_json, put_json_bytes, say, styled, width
from sessiondb.cli.preview import kind_of, preview
from sessiondb.cli.printable import columns_of, counted, one_line, pad, printable, with_tilde
from sessiondb.cli.table import Column, table
from sessiondb.cli.times import entry_time, full_time
from sessiondb.errors import EntryNotFoundError
from sessiondb.jsonl import parse_time
from sessiondb.sessions import SessionInfo
from sessiondb.store import Store

TERMINAL_LIMIT: Final = 50
AROUND: Final = 11

NARROW_KIND: Final = 14
"""Columns of a kind where they are scarce: room for `custom_message` and `branch_summary`."""

SELECT_ID = "SELECT id FROM sessions WHERE pk = ?"

ENTRY_COLUMNS: Final = (
    Column("line", right=True),
    Column("id", least=12),
    Column("kind"),
    Column("time"),
    Column("begins", least=16),
)

FAULT_COLUMNS: Final = (Column("line", right=True), Column("byte", right=True), Column("kind"), Column("what"))


@click.command("show", short_help="Show one session, or one of its entries.")
@click.argument("ref", type=PATH)
@click.argument("entry", type=TEXT, required=False)
@click.option("--faults", is_flag=True, help="What is wrong in its lines, instead of the entries.")
@click.option("--around", type=TEXT, metavar="ENTRY", help="Only this entry and those beside it (--limit, else 11).")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many entries (on a terminal 50, else all).")  # noqa: E501
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N entries.")
@takes_ndjson
@reads
@click.pass_obj
def command(
    settings: Settings, ref: str, entry: str | None, faults: bool, around: str | None, limit: int | None, offset: int,
    ndjson: bool, fresh: bool,
) -> None:  # fmt: skip
    """Show what is known of a session and how its entries begin; with ENTRY, exactly the bytes of that entry's JSON."""
    if entry is not None and (faults or ndjson or around):
        raise click.UsageError("with ENTRY go neither --faults nor --ndjson nor --around")
    if around is not None and (faults or offset):
        raise click.UsageError("with --around go neither --faults nor --offset")
    if limit is None and around is not None:
        limit = AROUND
    if limit is None and on_terminal() and not (settings.json or ndjson):
        limit = TERMINAL_LIMIT
    with reading(settings, fresh=fresh) as store:
        info = store.session(ref)
        if around is not None:
            offset = _first_around(store.entries(info), around, limit or AROUND)
        if entry is not None:
            put_json_bytes(store.raw_entry(info, entry))  # one JSON document already
        elif faults:
            _show_faults(store, info, as_json=settings.json, ndjson=ndjson)
        elif ndjson:
            for item in _numbered_entries(store, info)[offset:][:limit]:
                put_json(item)
        elif settings.json:
            _print_document(store, info, offset, limit)
        else:
            put(_head(store, info))
            _show_entries(store, info, offset, limit, around)
            say_later_branch(store.later_branch(info))


def _numbered_entries(store: Store, info: SessionInfo) -> list[dict[str, Any]]:
    lines = entry_lines(store, info)
    return [{"line": line, "entry": entry} for line, entry in zip(lines, store.entries(info), strict=True)]


def _print_document(store: Store, info: SessionInfo, offset: int, limit: int | None) -> None:
    entries = _numbered_entries(store, info)
    put_json(
        {
            "session": info.to_dict(),
            "header": store.header(info),
            "entries": entries[offset:][:limit],
            "total": len(entries),
            "faults": store.faults(info),
            "later_branch": later_branch_object(store.later_branch(info)),
            "as_of": as_of(store),
        }
    )


def _show_faults(store: Store, info: SessionInfo, *, as_json: bool, ndjson: bool) -> None:
    faults = store.faults(info)
    if ndjson:
        for fault in faults:
            put_json(fault)
    elif as_json:
        put_json({"session": info.id, "faults": faults, "as_of": as_of(store)})
    elif faults:
        rows = [(f"{f['line']:,}", f"{f['offset']:,}", f["kind"], printable(f["message"])) for f in faults]
        put(table(FAULT_COLUMNS, rows))
    else:
        say(f"no faults in {info.id}")


def _head(store: Store, info: SessionInfo) -> Iterator[str]:
    facts = list(_facts(store, info))
    size = max(columns_of(name) for name, _ in facts)
    for name, value in facts:
        yield f"{styled(pad(name, size), BOLD)}  {value}"
    yield ""


def _facts(store: Store, info: SessionInfo) -> Iterator[tuple[str, str]]:
    yield "id", printable(info.id)
    yield "dialect", printable(f"{info.dialect} ({info.dialect_reason}), version {info.version}")
    if info.title:
        yield "title", one_line(info.title, (width() or 10_000) - 12)
    if info.cwd:
        yield "cwd", with_tilde(info.cwd)
    yield "created", full_time(info.created_ms)
    yield "modified", full_time(info.modified_ms)
    yield "imported", full_time(info.imported_ms)
    if info.parent_session:
        yield "parent", printable(info.parent_session)
    counts = ((info.message_count, "message"), (info.entry_count, "entry"), (info.line_count, "line"))
    yield "holds", ", ".join(counted(*count) for count in (*counts, (info.byte_count, "byte")))
    if info.fault_count:
        yield "faults", f"{info.fault_count:,}; --faults lists them"
    for path in info.paths:
        yield "path", printable(str(path)) + ("" if os.path.lexists(path) else " (gone)")
    if info.grown_from is not None:
        yield "grown from", _id_of(store, info.grown_from)
    if info.replaced_from is not None:
        yield "replaces", _id_of(store, info.replaced_from)
    if info.superseded:
        yield "superseded", "its file's bytes were replaced by another session's"


def _id_of(store: Store, pk: int) -> str:
    rows = store.sql(SELECT_ID, (pk,))
    return printable(rows[0]["id"]) if rows else "a session that is no more"


def _first_around(entries: list[Any], entry_id: str, count: int) -> int:
    """How many entries stand before the first of `count` that have the entry in their middle."""
    places = [place for place, entry in enumerate(entries) if type(entry) is dict and entry.get("id") == entry_id]
    if not places:
        raise EntryNotFoundError(entry_id)
    return max(0, min(places[-1] - count // 2, len(entries) - count))


def _show_entries(store: Store, info: SessionInfo, offset: int, limit: int | None, around: str | None) -> None:
    entries = _numbered_entries(store, info)
    shown = entries[offset:][:limit]
    if shown:
        put(table(ENTRY_COLUMNS, [_row(item["line"], item["entry"], around) for item in shown]))
    if len(shown) < len(entries):
        say(f"{len(shown):,} of {len(entries):,} entries, from number {offset + 1:,}; --limit and --offset show others")


def _row(line: int, entry: Any, around: str | None) -> tuple[str, ...]:
    is_object = type(entry) is dict
    entry_id = entry.get("id") if is_object else None
    time_ms = parse_time(entry.get("timestamp")) if is_object else None
    shown_id = printable(entry_id) if type(entry_id) is str else ""
    if around is not None and entry_id == around:
        shown_id += " ←"
    if width() is None:
        return (f"{line:,}", shown_id, kind_of(entry), full_time(time_ms), preview(entry))
    return (f"{line:,}", shown_id, kind_of(entry, NARROW_KIND), entry_time(time_ms), preview(entry))
