"""`sessiondb verify`: hold the database against the files it came from."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import click
from sessiondb.cli.failures import DAMAGE, DONE, NOT_DONE
from sessiondb.cli.options import PATH, Settings, as_of, reading, reads
from sessiondb.cli.output import on_terminal, put, put_bytes, put_json, say
from sessiondb.cli.printable import counted, printable
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
        if deletable and not settings.json:
            _list_deletable(_verdicts(store, refs), b"\0" if print0 else b"\n")
            return
        verdicts = list(_verdicts(store, refs))
        if settings.json:
            chosen = [v.to_dict() for v in verdicts if v.is_deletable or not deletable]
            put_json({"verdicts": chosen, "counts": Counter(v.state for v in verdicts), "as_of": as_of(store)})
        else:
            put(_lines(verdicts))
            _say_unchecked(store, refs, verdicts)
    ctx.exit(_exit_code(verdicts) if not deletable else DONE)


def _verdicts(store: Store, refs: tuple[str, ...]) -> Iterator[Verdict]:
    if not refs:
        yield from store.verify()
    for info in [store.session(ref) for ref in refs]:
        yield from store.verify(info)


def _list_deletable(verdicts: Iterator[Verdict], end: bytes) -> None:
    for verdict in verdicts:
        if not verdict.is_deletable:
            continue
        # A pipe gets the path's own bytes; a terminal must not be steered by them.
        if end == b"\n" and on_terminal():
            put([printable(verdict.path)])
        else:
            put_bytes(os.fsencode(verdict.path), end)
    sys.stdout.flush()


def _lines(verdicts: list[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        if remarks := _remarks(verdict):
            yield printable(f"{verdict.state:<10}  {verdict.path}: {'; '.join(remarks)}")
    counts = Counter(verdict.state for verdict in verdicts)
    for state, meaning in MEANINGS.items():
        if counts[state] or state == "equal":
            yield f"{state:<10}  {counts[state]:>6,}  {meaning}"


def _remarks(verdict: Verdict) -> list[str]:
    """What is to be said of this path; nothing when it is simply equal."""
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
    if verdict.state == "gone":
        remarks.append("no such file any more")
    return remarks


def _say_unchecked(store: Store, refs: tuple[str, ...], verdicts: list[Verdict]) -> None:
    """Name the sessions that no file stands for: nothing was compared for them."""
    paths = {verdict.path for verdict in verdicts}
    asked = [store.session(ref) for ref in refs] if refs else store.sessions(superseded=True)
    for info in asked:
        if not paths.intersection(map(str, info.paths)):
            why = "its file holds another session now" if info.superseded else "no file is known for it"
            say(f"not compared: {info.id} ({info.line_count:,} lines), {why}")


def _exit_code(verdicts: list[Verdict]) -> int:
    if any(verdict.state == "damaged" for verdict in verdicts):
        return DAMAGE
    return DONE if all(verdict.is_good for verdict in verdicts) else NOT_DONE
