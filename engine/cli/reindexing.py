"""`sessiondb reindex`: derive again what is stored beside the lines."""

from __future__ import annotations

import click

from sessiondb.cli.options import PATH, Settings, common, writing
from sessiondb.cli.output import put, put_json
from sessiondb.cli.printable import counted


@click.command("reindex", short_help="Derive everything beside the lines again.")
@click.argument("ref", type=PATH, required=False)
@common
@click.pass_obj
def command(settings: Settings, ref: str | None) -> None:
    """Derive entries, faults and the text index again from the lines: of one session, or of all."""
    with writing(settings) as store:
        count = store.reindex(ref)
    if settings.json:
        put_json({"database": str(settings.database), "sessions": count})
    else:
        put([f"{counted(count, 'session')} derived again from the lines"])
