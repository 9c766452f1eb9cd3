"""The command `sessiondb`: parse arguments, call the store, print. One module a command, imported when it is asked for.

Data goes to stdout, messages and progress to stderr. Exit codes: see `failures`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import click

from sessiondb.cli.failures import exit_codes
from sessiondb.cli.options import common, print_version
from sessiondb.cli.output import prepare_streams

COMMANDS: Final = {
    "import": "taking_in",
    "export": "exporting",
    "verify": "verifying",
    "ls": "listing",
    "show": "showing",
    "tree": "tree",
    "context": "context",
    "search": "searching",
    "history": "remembering",
    "sql": "querying",
    "check": "checking",
    "reindex": "reindexing",
}
"""Each command's module, in the order of the help. In it the command is called `command`."""


class Commands(click.Group):
    """Imports a command's module when it runs, so that `ls` does not pay for the others; ends it with its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"sessiondb.cli.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with exit_codes(ctx):
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe must show here, not when Python goes down
            return result


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@common
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version,
              help="Print the version and leave.")  # fmt: skip
def program() -> None:
    """Sessions of coding agents (pi, oh-my-pi, xcsh) in one SQLite database, in and out as JSONL byte for byte.

    The database is the file of --db, else of $SESSIONDB_DB, else $XDG_DATA_HOME/sessiondb/sessions.db (default
    ~/.local/share). REF is a session's id, the start of one, or a path it was seen under.

    Exit codes: 0 done; 1 something asked for could not be done, or a difference was found; 2 asked wrongly; 3 the
    database is busy; 4 damage.
    """


def main() -> None:
    """Run the program with the process's arguments."""
    prepare_streams()
    program(prog_name="sessiondb")
