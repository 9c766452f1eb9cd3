"""What an import did, in words: counts first, then everything that was left out or is not as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from sessiondb.cli.output import BOLD, styled
from sessiondb.cli.printable import counted, printable
from sessiondb.cli.table import Column, table
from sessiondb.report import FileFault, ImportReport, Skipped

LISTED_FAULTS: Final = 20
"""Damaged lines up to so many are listed one by one, more are grouped by kind."""

COLUMNS: Final = (Column("outcome"), Column("count", right=True), Column("", least=20))


def summary(report: ImportReport) -> Iterator[str]:
    """The lines of the report, a table of counts last so that it stays in view."""
    yield from _section("skipped", (f"{skip.path}: {skip.reason}" for skip in report.skipped))
    yield from _section("damaged lines, kept as they are", _fault_lines(report))
    yield from _section("blobs not found", _blob_lines(report.missing_blobs))
    yield from _section("vanished since the last import; their sessions are kept", report.vanished)
    yield from _section("leftovers of interrupted rewrites; name one to import it", report.leftovers)
    yield from _section("warnings", report.warnings)
    yield from table(COLUMNS, list(_counts(report)))
    yield _work(report)
    yield printable(f"database {report.database}")
    if report.dry_run:
        yield "dry run: nothing was written; this is what an import would do"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = list(lines)
    if listed:
        yield styled(f"{title}:", BOLD)
        yield from (f"  {printable(line)}" for line in listed)
        yield ""


def _fault_lines(report: ImportReport) -> Iterator[str]:
    faults = report.faults
    if report.fault_count <= LISTED_FAULTS:
        yield from (f"{fault.path}:{fault.line} {fault.kind}: {fault.message}" for fault in faults)
        return
    in_order = sorted(faults, key=lambda fault: fault.kind)
    for kind, group in groupby(in_order, key=lambda fault: fault.kind):
        yield from _fault_group(kind, list(group))
    if report.fault_count > len(faults):
        yield f"and {report.fault_count - len(faults):,} more"
    yield "all of one file: sessiondb show PATH --faults"
    yield "all there are: sessiondb sql 'SELECT * FROM faults'"


def _fault_group(kind: str, faults: list[FileFault]) -> Iterator[str]:
    files = len({fault.path for fault in faults})
    first = faults[0]
    yield f"{kind}: {counted(len(faults), 'line')} in {counted(files, 'file')}, the first:"
    yield f"  {first.path}:{first.line} {first.message}"


def _blob_lines(missing: list[Skipped]) -> Iterator[str]:
    for path, count in Counter(blob.path for blob in missing).items():
        first = next(blob.reason for blob in missing if blob.path == path)
        yield f"{path}: {first}" + (f" (and {count - 1:,} more)" if count > 1 else "")


def _counts(report: ImportReport) -> Iterator[tuple[str, str, str]]:
    rows = (
        ("imported", report.imported, "new sessions", True),
        ("replaced", report.replaced, "of them from files whose old part changed; the old ones are kept", False),
        ("updated", report.updated, "sessions that grew", True),
        ("unchanged", report.unchanged, "sessions held already", True),
        ("known elsewhere", report.known_elsewhere, "of them under another path", False),
        ("skipped", len(report.skipped), "paths not taken in", True),
        ("damaged lines", report.fault_count, "", True),
        ("blobs", report.blobs, "taken in", False),
        ("missing blobs", len(report.missing_blobs), "referred to and not found", False),
        ("vanished", len(report.vanished), "paths", False),
        ("leftovers", len(report.leftovers), "", False),
        ("ignored", sum(report.ignored.values()), "other files: " + _endings(report.ignored), False),
    )
    return ((name, f"{count:,}", note) for name, count, note, always in rows if count or always)


def _endings(ignored: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {printable(ending)}" for ending, count in ignored.items())


def _work(report: ImportReport) -> str:
    size = report.bytes_read / 1e6
    speed = f", {size / report.seconds:,.1f} MB/s" if report.seconds > 0 and report.bytes_read else ""
    return f"{counted(report.files, 'file')} looked at, {size:,.1f} MB read in {report.seconds:,.2f} s{speed}"
