"""`sessiondb import`: take in session files and folders of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from sessiondb.cli.failures import NOT_DONE
from sessiondb.cli.import_summary import summary
from sessiondb.cli.options import PATH, TEXT, Settings, common, rehearsing, writing
from sessiondb.cli.output import put, put_json, say
from sessiondb.cli.progress import progress_bar
from sessiondb.discovery import AGENT_PLACES, agent_roots
from sessiondb.metadata import DIALECTS
from sessiondb.report import ImportReport


@click.command("import", short_help="Take in session files and folders of them.")
@click.argument("paths", nargs=-1, type=PATH, metavar="[PATH]...")
@click.option("--dialect", type=click.Choice(DIALECTS), help="The client that wrote them; else told from the lines.")
@click.option("--id", "session_id", type=TEXT, metavar="ID", help="The id of files that have no header.")
@click.option("--dry-run", is_flag=True, help="Look and report, write nothing.")
@click.option("--strict", is_flag=True, help="Exit with 1 when lines are damaged, too.")
@common
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[str, ...], dialect: str | None, session_id: str | None, dry_run: bool, strict: bool
) -> None:  # fmt: skip
    """Take in session files and folders of them; without PATH, the folders of every known agent.

    Files are only read, and what was taken in before costs nothing: run it as often as you like. Damaged lines are kept
    as they are and listed. A path that could not be taken in is listed and makes the exit code 1.
    """
    settings = ctx.ensure_object(Settings)
    roots = list(paths) or _known_folders()
    store_for = rehearsing if dry_run else writing
    with store_for(settings) as store, progress_bar() as on_progress:
        report = store.import_paths(
            roots, dialect=dialect, session_id=session_id, dry_run=dry_run, on_progress=on_progress
        )
    report.database = str(settings.database)  # a rehearsal may have had another
    if settings.json:
        put_json(report.to_dict())
    else:
        put(summary(report))
    if _is_lacking(report, strict=strict):
        ctx.exit(NOT_DONE)


def _known_folders() -> Sequence[Path]:
    roots = agent_roots()
    if not roots:
        raise click.ClickException(
            "no agent's sessions are here; looked for " + ", ".join(AGENT_PLACES) + ". Name files or folders instead"
        )
    say("looking in " + ", ".join(map(str, roots)))
    return roots


def _is_lacking(report: ImportReport, *, strict: bool) -> bool:
    return bool(report.skipped) or (strict and report.fault_count > 0)
