"""`sessiondb check`: is the database itself in order?"""

from __future__ import annotations

import click

from sessiondb.cli.failures import DAMAGE
from sessiondb.cli.options import Settings, as_of, reading, reads
from sessiondb.cli.output import put, put_json, say
from sessiondb.cli.printable import counted, printable


@click.command("check", short_help="Check the database itself.")
@reads
@click.pass_context
def command(ctx: click.Context, fresh: bool) -> None:
    """Check pages and references, and that every row is what its line gives. Problems are printed: exit code 4."""
    settings = ctx.ensure_object(Settings)
    with reading(settings, fresh=fresh) as store:
        problems = store.check()
        if settings.json:
            put_json({"database": str(store.database), "problems": problems, "as_of": as_of(store)})
        else:
            put(map(printable, problems))
            say(counted(len(problems), "problem") if problems else "no problem found")
    if problems:
        ctx.exit(DAMAGE)
