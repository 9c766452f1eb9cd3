"""`sessiondb verify`: hold the database against the files it came from."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import click

from sessiondb.cli.failures import DAMAGE, DONE, NOT_DONE
from sessiondb.cli.options import PATH, Settings, as_of, reading, reads
from sessiondb.cli.output import on_terminal, put, put_bytes, put_json, say
from sessiondb.cli.printable import counted, printable
from sessiondb.cli.progress import progress_bar
from sessiondb.report import Progress
from sessiondb.sessions import SessionInfo
from sessiondb.store import Store
from sessiondb.verify import State, Verdict

MEANINGS: Final[dict[State, str]] = {
    "equal": "every byte of the file is held",
    "gone": "the file is no more; the held bytes are as they were imported",
    "grown": "the file goes on; import takes in the rest",
    "changed": "the file's old part is another; import keeps both",
    "unreadable": "the file cannot be read",
    "damaged": "the held bytes are not those that were imported",
}

LISTED_GONE: Final = 20
"""Who deletes what verify allowed to delete has thousands of these: more are only counted, and listed with --json."""


@click.command("verify", short_help="Compare every session with its file, byte for byte.")
@click.argument("refs", nargs=-1, type=PATH, metavar="[REF]...")
@click.option("--deletable", is_flag=True, help="List the files whose every byte and blob is held, nothing else.")
@click.option("--print0", is_flag=True, help="With --deletable: end each path with NUL, for `xargs -0`.")
@reads
@click.pass_context
def command(ctx: click.Context, refs: tuple[str, ...], deletable: bool, print0: bool, fresh: bool) -> None:
    """Compare sessions with the files they came from, byte for byte; without REF, all of them.

    Exit code 1 when a file has something the database has not, 4 when the database itself is damaged. With --deletable
    the answer to "may I delete the files now?": those whose every byte and blob is held and was checked just now.
    """
    settings = ctx.ensure_object(Settings)
    if print0 and not deletable:
        raise click.UsageError("--print0 goes with --deletable")
    with reading(settings, fresh=fresh) as store:
        infos = [store.session(ref) for ref in refs] if refs else store.sessions(superseded=True)
        if deletable and not settings.json:
            left_out = _list_deletable((v for info in infos for v in store.verify(info)), b"\0" if print0 else b"\n")
            ctx.exit(NOT_DONE if left_out else DONE)
        verdicts = _compare(store, infos)
        if settings.json:
            chosen = [_as_object(v) for v in verdicts if v.is_deletable or not deletable]
            counts = dict(Counter(v.state for v in verdicts))
            put_json({"verdicts": chosen, "counts": counts, "as_of": as_of(store)})
        else:
            put(_lines(verdicts))
    ctx.exit(_exit_code(verdicts) if not deletable else DONE)


def _compare(store: Store, infos: list[SessionInfo]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    done, total = 0, sum(info.byte_count for info in infos)
    with progress_bar() as on_progress:
        for number, info in enumerate(infos):
            if on_progress:
                on_progress(Progress(number, len(infos), done, total))
            verdicts += store.verify(info)
            done += info.byte_count
    return verdicts


def _list_deletable(verdicts: Iterator[Verdict], end: bytes) -> int:
    """Print the paths; how many were left out, because a line of theirs could be read as another path."""
    left_out = 0
    for verdict in verdicts:
        if not verdict.is_deletable:
            continue
        if end == b"\n" and "\n" in verdict.path:
            say(f"left out, for its name holds a newline: {verdict.path!r}; --print0 lists it")
            left_out += 1
            continue
        # A pipe gets the path's own bytes; a terminal must not be steered by them.
        if end == b"\n" and on_terminal():
            put([printable(verdict.path)])
        else:
            put_bytes(os.fsencode(verdict.path), end)
    sys.stdout.flush()
    return left_out


def _as_object(verdict: Verdict) -> dict[str, Any]:
    return verdict.to_dict() | {"missing_blobs": list(verdict.missing_blobs)}


def _lines(verdicts: list[Verdict]) -> Iterator[str]:
    counts = Counter(verdict.state for verdict in verdicts)
    for verdict in verdicts:
        remarks = _remarks(verdict)
        if verdict.state == "gone" and counts["gone"] <= LISTED_GONE:
            remarks.append("no such file any more" if verdict.path else "its file holds another session now")
        if remarks:
            yield printable(f"{verdict.state:<10}  {verdict.path or verdict.session}: {'; '.join(remarks)}")
    for state, meaning in MEANINGS.items():
        if counts[state] or state == "equal":
            yield f"{state:<10}  {counts[state]:>6,}  {meaning}"


def _remarks(verdict: Verdict) -> list[str]:
    """What is to be said of this path; nothing when all its bytes are held."""
    remarks = []
    if verdict.state == "grown":
        remarks.append(f"{counted(verdict.lines, 'more line')} in the file")
    if verdict.detail:
        remarks.append(verdict.detail)
    if verdict.ahead:
        remarks.append(f"{verdict.ahead:,} bytes were appended here since the import")
    if verdict.missing_blobs:
        first, *others = verdict.missing_blobs
        remarks.append(f"blob {first} is not held" + (f", nor {len(others):,} more" if others else ""))
    return remarks


def _exit_code(verdicts: list[Verdict]) -> int:
    if any(verdict.state == "damaged" for verdict in verdicts):
        return DAMAGE
    return DONE if all(verdict.is_good for verdict in verdicts) else NOT_DONE
