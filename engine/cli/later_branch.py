"""Says when another branch than the default leaf's has later messages."""

from __future__ import annotations

from typing import Any

from sessiondb.cli.output import say
from sessiondb.cli.printable import printable
from sessiondb.cli.times import full_time
from sessiondb.jsonl import format_time
from sessiondb.later_branch import LaterBranch


def say_later_branch(later: LaterBranch | None) -> None:
    """A message for people, if there is something to say."""
    if later is not None:
        when = full_time(later.time_ms)
        say(f"another branch has later messages, up to {when}: it ends at {printable(later.leaf_id)}")


def later_branch_object(later: LaterBranch | None) -> dict[str, Any] | None:
    """The same for a JSON document."""
    return None if later is None else {"leaf": later.leaf_id, "time": format_time(later.time_ms)}
