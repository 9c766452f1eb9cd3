"""Terminal breadcrumbs of xcsh: which session was last used in this terminal, so that "continue" finds it again.

`terminal-sessions/<terminal>` in the agent's folder holds two lines, the working directory and the session file. Where
several sessions of a project are open at once, each terminal goes on with its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessiondb.file_storage import FileSessionStorage

LONGEST_BREADCRUMB: Final = 1 << 16
"""Bytes; two paths are shorter on every system."""

TERMINAL_VARIABLES: Final = (
    ("KITTY_WINDOW_ID", "kitty"),
    ("TMUX_PANE", "tmux"),
    ("TERM_SESSION_ID", "apple"),
    ("WT_SESSION", "wt"),
)
"""What names a terminal when its device does not, in xcsh's order."""


def write_breadcrumb(
    agent_dir: Path, cwd: str, session_file: str | os.PathLike[str], *, terminal: str | None = None
) -> bool:
    """Note that this terminal now uses this session; atomic, for the owner alone. Whether it could be noted.

    Never raises: a session must not fail because its terminal has no name or the note no place.
    """
    terminal = terminal or current_terminal()
    path = os.path.abspath(session_file)  # noqa: PTH100 - Path.resolve() would follow links
    if terminal is None or "\n" in cwd + path:
        return False
    try:
        FileSessionStorage().write_text(_place(agent_dir, terminal), f"{cwd}\n{path}\n")
    except (OSError, ValueError):
        return False
    return True


def read_breadcrumb(agent_dir: Path, cwd: str, *, terminal: str | None = None) -> Path | None:
    """The session file this terminal used last, if that was in this working directory and the file is still there."""
    terminal = terminal or current_terminal()
    if terminal is None:
        return None
    try:
        text = FileSessionStorage().read_text_prefix(_place(agent_dir, terminal), LONGEST_BREADCRUMB)
    except (OSError, ValueError):
        return None
    noted_cwd, _, rest = text.partition("\n")
    session_file = rest.partition("\n")[0].removesuffix("\r")
    is_here = os.path.abspath(noted_cwd.removesuffix("\r")) == os.path.abspath(cwd)  # noqa: PTH100 - links stay, as there
    return Path(session_file) if is_here and os.path.isfile(session_file) else None  # noqa: PTH113 - never raises


def current_terminal() -> str | None:
    """The `terminal_id` of this process."""
    try:
        tty = os.ttyname(0)
    except OSError:  # standard input is no terminal
        tty = None
    return terminal_id(os.environ, tty)


def terminal_id(environ: Mapping[str, str], tty: str | None) -> str | None:
    """A name for a terminal that stays the same while it is open: from its device, else from its program's variables.

    `/dev/pts/3` is `pts-3`. None when nothing names it.
    """
    if tty is not None and tty.startswith("/dev/"):
        return tty.removeprefix("/dev/").replace("/", "-")
    for variable, program in TERMINAL_VARIABLES:
        if value := environ.get(variable):
            return program + "-" + re.sub(r"[/\\]", "-", value)
    return None


def _place(agent_dir: Path, terminal: str) -> Path:
    return agent_dir / "terminal-sessions" / terminal
