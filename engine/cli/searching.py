"""`sessiondb search`: what was ever said, in any session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from sessiondb.cli.listing import absolute_cwd
from sessiondb.cli.options import PATH, TEXT, Settings, as_of, reading, reads, takes_ndjson
from sessiondb.cli.output import BOLD, DIM, put, put_json, say, styled, width
from sessiondb.cli.printable import columns_of, cut, one_line, printable, with_tilde
from sessiondb.cli.times import parse_date, short_time
from sessiondb.search import Hit
from sessiondb.texts import KINDS

SHORT_ID: Final = 13
"""Columns of an id: enough to tell sessions of one minute apart."""


@click.command("search", short_help="Find what was said, in all sessions.")
@click.argument("text", type=TEXT, nargs=-1, required=True)
@click.option("--in", "kinds", type=click.Choice(sorted(KINDS)), multiple=True, help="Only in texts of this kind; again for more.")  # noqa: E501
@click.option("--cwd", type=TEXT, metavar="PATH", help="Only in sessions of this working directory.")
@click.option("--session", type=PATH, metavar="REF", help="Only in this session.")
@click.option("--role", type=TEXT, help="Only messages of this role: user, assistant, toolResult, …")
@click.option("--tool", type=TEXT, metavar="NAME", help="Only results of this tool.")
@click.option("--model", type=TEXT, metavar="NAME", help="Only answers of this model.")
@click.option("--since", callback=parse_date, metavar="DATE", help="Only at or after this; a date is its midnight here.")  # noqa: E501
@click.option("--until", callback=parse_date, metavar="DATE", help="Only before this.")
@click.option("--newest", is_flag=True, help="Newest first, instead of best first.")
@click.option("--fts", is_flag=True, help="TEXT is in FTS5's own syntax: AND, OR, NOT, NEAR(…), columns.")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", show_default=True, help="At most so many.")  # noqa: E501
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N.")
@click.option("--max-chars", type=click.IntRange(min=0), metavar="N", help="At most so many characters of JSON in all.")
@takes_ndjson
@reads
@click.pass_obj
def command(
    settings: Settings, text: tuple[str, ...], kinds: tuple[str, ...], cwd: str | None, session: str | None,
    role: str | None, tool: str | None, model: str | None, since: int | None, until: int | None, newest: bool,
    fts: bool, limit: int, offset: int, max_chars: int | None, ndjson: bool, fresh: bool,
) -> None:  # fmt: skip
    """Find what was said: every word of TEXT, in any order, in one entry.

    A trailing * makes a word a prefix, a closed pair of double quotes a phrase; nothing else is syntax. Looks at
    everything: messages, thinking, tool calls and their results, summaries, labels, names. `show SESSION --around
    ENTRY` reads on from a hit.
    """
    query = " ".join(text)
    with reading(settings, fresh=fresh) as store:
        found = store.search(
            query, kinds=kinds, cwd=absolute_cwd(cwd), session=session, role=role, tool=tool, model=model,
            since_ms=since, until_ms=until, fts=fts, order="newest" if newest else "rank", limit=limit, offset=offset,
            max_chars=max_chars,
        )  # fmt: skip
        if ndjson:
            for hit in found.hits:
                put_json(hit.to_dict())
        elif settings.json:
            document = {"query": query, "total": found.total, "cut": found.cut, "reason": found.reason}
            put_json(document | {"hits": [hit.to_dict() for hit in found.hits], "as_of": as_of(store)})
        else:
            put(line for hit in found.hits for line in _lines(hit))
    if settings.json and not ndjson:
        return
    if found.reason:
        say(f"no hit: {found.reason}")
    elif found.total == 0:
        say("no hit")
    elif found.cut or offset:
        say(f"{len(found.hits):,} of {found.total:,} hits, from number {offset + 1:,}; --limit, --offset show others")


def _lines(hit: Hit) -> Iterator[str]:
    """Where it was said, and under that what."""
    place = f"{printable(hit.session)[:SHORT_ID]} {printable(hit.entry or '')}".rstrip()
    who = hit.role if hit.role and hit.role != "toolResult" else hit.tool or hit.type or ""
    parts = [short_time(hit.time_ms), place, printable(who), with_tilde(hit.cwd or ""), one_line(hit.title or "")]
    if hit.superseded:
        parts.insert(3, "(superseded)")
    yield styled(cut("  ".join(part for part in parts if part), width() or 10_000), DIM)
    yield "  " + _marked(hit)


def _marked(hit: Hit) -> str:
    """The snippet, as wide as there is room, its matches bold or between stars."""
    room = (width() or 10_000) - 4
    pieces: list[str] = []
    place = 0
    for begin, end in [*hit.marks, (len(hit.snippet), len(hit.snippet))]:
        for text, is_match in ((hit.snippet[place:begin], False), (hit.snippet[begin:end], True)):
            shown = cut(printable(text), room) if room > 0 else ""
            room -= columns_of(shown)
            pieces.append(_as_match(shown) if is_match and shown else shown)
        place = end
    return "".join(pieces)


def _as_match(text: str) -> str:
    bold = styled(text, BOLD)
    return bold if bold != text else f"**{text}**"
