"""`sessiondb export`: sessions as JSONL files again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import click

from sessiondb.cli.failures import NOT_DONE
from sessiondb.cli.options import PATH, Settings, as_of, reading, reads
from sessiondb.cli.output import put_json, say
from sessiondb.cli.printable import counted
from sessiondb.exporter import FORMS, ExportReport, Form
from sessiondb.sessions import Filter
from sessiondb.store import Store


@click.command("export", short_help="Write sessions as JSONL files again.")
@click.argument("ref", type=PATH, required=False)
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Where to; without it, stdout.")
@click.option("--all", "everything", is_flag=True, help="Every session and blob, in an agent's folder layout.")
@click.option("--to", type=PATH, metavar="DIR", help="The folder for --all.")
@click.option("--form", type=click.Choice(FORMS), default="as-is", show_default=True,
              help="as-is: the file and what was appended since; original: exactly the imported bytes; current: as the "
                   "client would write it today.")  # fmt: skip
@click.option("--superseded", is_flag=True, help="With --all: also those whose file's bytes were replaced.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@reads
@click.pass_context
def command(
    ctx: click.Context, ref: str | None, output: str | None, everything: bool, to: str | None, form: Form,
    superseded: bool, force: bool, fresh: bool,
) -> None:  # fmt: skip
    """Write a session's bytes to stdout or a file, or every session into a folder. The report goes to stderr.

    A file appears whole or not at all, and one that exists is replaced only with --force. Two sessions that want one
    name get -2, -3 … and are listed.
    """
    settings = ctx.ensure_object(Settings)
    _require_sense(settings, ref, output, everything=everything, to=to)
    with reading(settings, fresh=fresh) as store:
        if to is not None:
            report = store.export_all(to, form, force=force, superseded=superseded)
            left_out = 0 if superseded else store.count_sessions(Filter(superseded=True)) - store.count_sessions()
            _tell_all(store, report, left_out, as_json=settings.json)
            if report.refused:
                ctx.exit(NOT_DONE)
        elif ref is not None:
            _export_one(store, ref, output, form, force=force, as_json=settings.json)


def _require_sense(settings: Settings, ref: str | None, output: str | None, *, everything: bool, to: str | None) -> None:  # noqa: E501
    if everything and (ref is not None or output is not None):
        raise click.UsageError("--all takes no REF and no -o; its folder is --to DIR")
    if everything != (to is not None):
        raise click.UsageError("--all and --to DIR go together")
    if not everything and ref is None:
        raise click.UsageError("name a session (REF), or --all --to DIR")
    if settings.json and not everything and output in (None, "-"):
        raise click.UsageError("--json prints the report to stdout, where the session's bytes go: add -o FILE")


def _export_one(store: Store, ref: str, output: str | None, form: Form, *, force: bool, as_json: bool) -> None:
    info = store.session(ref)
    if output in (None, "-"):
        sys.stdout.flush()
        store.export(info, sys.stdout.buffer, form)
        return
    assert output is not None
    written = store.export(info, output, form, force=force)
    missing = store.blobs.missing(info.pk)
    if as_json:
        put_json({"session": info.id, "path": output, "form": form, "bytes_written": written,
                  "missing_blobs": missing, "as_of": as_of(store)})  # fmt: skip
        return
    say(f"{output}: {written:,} bytes, session {info.id}, {form}")
    if missing:
        say(_missing_line(info.id, missing))


def _missing_line(session: str, digests: list[str]) -> str:
    more = f" and {len(digests) - 1:,} more, all listed with --json" if len(digests) > 1 else ""
    return f"blobs that are not held: session {session} refers to {digests[0]}{more}"


def _tell_all(store: Store, report: ExportReport, left_out: int, *, as_json: bool) -> None:
    if as_json:
        pairs = {"renamed": [*map(list, report.renamed)], "refused": [*map(list, report.refused)]}
        put_json(report.to_dict() | pairs | {"superseded_left_out": left_out, "as_of": as_of(store)})
    else:
        for line in _report_lines(report, left_out):
            say(line)


def _report_lines(report: ExportReport, left_out: int) -> Iterator[str]:
    yield from (f"renamed: {wanted} is {name}" for wanted, name in report.renamed)
    yield from (f"refused: {why}" for _, why in report.refused)
    for session, blobs in groupby((blob.rsplit(": ", 1) for blob in report.missing_blobs), key=itemgetter(0)):
        yield _missing_line(session, [digest for _, digest in blobs])
    if left_out:
        yield f"left out: {left_out:,} superseded; --superseded writes them too"
    refused = f", {len(report.refused):,} refused" if report.refused else ""
    size = report.bytes_written / 1e6
    yield f"{report.folder}: {counted(report.files, 'file')}, {size:,.1f} MB, {counted(report.blobs, 'blob')}{refused}"
