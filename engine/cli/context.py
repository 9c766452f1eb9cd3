"""`sessiondb context`: what would go to the model from a leaf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from sessiondb.cli.later_branch import later_branch_object, say_later_branch
from sessiondb.cli.options import PATH, TEXT, Settings, as_of, reading, reads, takes_ndjson
from sessiondb.cli.output import put, put_json, say, width
from sessiondb.cli.preview import kind_of, preview
from sessiondb.cli.printable import counted, one_line, printable
from sessiondb.cli.table import Column, table
from sessiondb.cli.times import full_time
from sessiondb.context import ContextReport
from sessiondb.jsonl import UNSET, parse_time

COLUMNS: Final = (Column("role"), Column("time"), Column("begins", least=16))


@click.command("context", short_help="Show what goes to the model from a session's leaf.")
@click.argument("ref", type=PATH)
@click.option("--leaf", type=TEXT, metavar="ID", help="The entry to end at (default: the last one).")
@takes_ndjson
@reads
@click.pass_obj
def command(settings: Settings, ref: str, leaf: str | None, ndjson: bool, fresh: bool) -> None:
    """Build the context as the session's own client would: the branch to the leaf, after its last compaction.

    With --json one document: the context in the client's keys (`messages`, `models` or `model`, …), and "session",
    "leaf", "report" {"openToolCalls", "unreachable", "brokenParent"}, "later_branch", "as_of". With --ndjson its
    messages, one a line. Messages on stderr say what keeps it from being whole.
    """
    with reading(settings, fresh=fresh) as store:
        info = store.session(ref)
        context = store.context(info, UNSET if leaf is None else leaf)
        report = store.context_report(info, UNSET if leaf is None else leaf)
        later = store.later_branch(info) if leaf is None else None
        if ndjson:
            for message in context["messages"]:
                put_json(message)
        elif settings.json:
            about = {"session": info.id, "leaf": leaf or store.leaf_id(info), "report": _as_object(report)}
            put_json({**context, **about, "later_branch": later_branch_object(later), "as_of": as_of(store)})
        else:
            put(_settings(context))
            put(table(COLUMNS, [_row(message) for message in context["messages"]]))
            _say_what_is_amiss(report)
            say_later_branch(later)


def _as_object(report: ContextReport) -> dict[str, Any]:
    calls = [{"entryId": c.entry_id, "toolCallId": c.tool_call_id, "name": c.name} for c in report.open_tool_calls]
    return {"openToolCalls": calls, "unreachable": report.unreachable, "brokenParent": report.broken_parent}


def _settings(context: dict[str, Any]) -> Iterator[str]:
    for name, value in context.items():
        if name != "messages" and value not in (None, [], {}, False):
            yield f"{name}: {one_line(_shown(value), (width() or 10_000) - len(name) - 2)}"
    yield ""


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    return ", ".join(_shown(item) for item in value) if isinstance(value, list) else str(value)


def _row(message: Any) -> tuple[str, ...]:
    entry = {"type": "message", "message": message}
    time_ms = parse_time(message.get("timestamp")) if type(message) is dict else None
    return kind_of(entry), full_time(time_ms), preview(entry)


def _say_what_is_amiss(report: ContextReport) -> None:
    for call in report.open_tool_calls:
        say(f"entry {call.entry_id}: the call {call.tool_call_id} of the tool {call.name} has no result")
    if report.broken_parent is not None:
        lost = counted(report.unreachable, "entry")
        say(f"the parent {printable(report.broken_parent)} is not above its entry: {lost} before cannot be reached")
