"""`sessiondb ls`: the sessions, newest activity first."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PureWindowsPath
from typing import Final

import click

from sessiondb.cli.options import TEXT, Settings, as_of, reading, reads, takes_ndjson
from sessiondb.cli.output import on_terminal, put, put_json, say, width
from sessiondb.cli.printable import cut, one_line, printable, with_tilde
from sessiondb.cli.table import Column, table
from sessiondb.cli.times import full_time, parse_date, short_time
from sessiondb.files import absolute
from sessiondb.sessions import Filter, SessionInfo

TERMINAL_LIMIT: Final = 20
SHORTEST_ID: Final = 8

COLUMNS: Final = (
    Column("when"),
    Column("id", least=36),  # a cut one names no session
    Column("msgs", right=True),
    Column("title or first message", least=10),
    Column("cwd", least=8, keep_end=True),
)


@click.command("ls", short_help="List sessions, newest activity first.")
@click.option("--cwd", type=TEXT, metavar="PATH", help="Only sessions of this working directory.")
@click.option("--query", type=TEXT, metavar="TEXT", help="Only with TEXT in title or first message, any case.")
@click.option("--since", callback=parse_date, metavar="DATE", help="Only active at or after this; a date is its midnight here.")  # noqa: E501
@click.option("--until", callback=parse_date, metavar="DATE", help="Only active before this.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many (on a terminal 20, else all).")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N.")
@click.option("--superseded", is_flag=True, help="Also those whose file's bytes were replaced.")
@takes_ndjson
@reads
@click.pass_obj
def command(
    settings: Settings, cwd: str | None, query: str | None, since: int | None, until: int | None, limit: int | None,
    offset: int, superseded: bool, ndjson: bool, fresh: bool,
) -> None:  # fmt: skip
    """List sessions, newest activity first: the time of the last message, never the file's."""
    which = Filter(absolute_cwd(cwd), query, since, until, superseded)
    if limit is None and on_terminal() and not (settings.json or ndjson):
        limit = TERMINAL_LIMIT
    with reading(settings, fresh=fresh) as store:
        total = store.count_sessions(which)
        found = store.sessions(which.cwd, which.query, limit, offset=offset, since_ms=since, until_ms=until,
                               superseded=superseded)  # fmt: skip
        if ndjson:
            for info in found:
                put_json(info.to_dict())
        elif settings.json:
            put_json({"sessions": [info.to_dict() for info in found], "total": total, "as_of": as_of(store)})
        else:
            put(_lines(found))
        if not settings.json:
            _say_what_is_left(len(found), offset, total)


def absolute_cwd(cwd: str | None) -> str | None:
    """The working directory as a header has it; one of another system stays as it is."""
    return cwd if cwd is None or PureWindowsPath(cwd).drive else str(absolute(cwd))


def _say_what_is_left(shown: int, offset: int, total: int) -> None:
    if total == 0:
        say("no session matches")
    elif shown < total:
        say(f"{shown:,} of {total:,} sessions, from number {offset + 1:,}; --limit and --offset show others")


def _lines(infos: list[SessionInfo]) -> list[str]:
    if not infos:
        return []
    when = short_time if on_terminal() else full_time
    cwd_columns = max(12, (width() or 4_000) // 4)  # the title tells more
    rows = [
        (
            when(info.modified_ms),
            printable(shown_id),
            f"{info.message_count:,}",
            _name(info),
            cut(with_tilde(info.cwd or ""), cwd_columns, keep_end=True),
        )
        for info, shown_id in zip(infos, _short_ids([info.id for info in infos]), strict=True)
    ]
    return list(table(COLUMNS, rows))


def _name(info: SessionInfo) -> str:
    name = one_line(info.title or info.first_message or "") or "(no message)"
    return "(superseded) " + name if info.superseded else name


def _short_ids(ids: list[str]) -> list[str]:
    """The start of each id that none of the others has, at least 8 characters; else the whole id."""
    needed = dict.fromkeys(ids, SHORTEST_ID)
    for one, other in pairwise(sorted(needed)):
        length = _common_length(one, other) + 1
        needed[one] = max(needed[one], length)
        needed[other] = max(needed[other], length)
    return [whole[: needed[whole]] for whole in ids]


def _common_length(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
