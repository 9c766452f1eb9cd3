"""What a session's answers cost, as xcsh's usage statistics count it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sessiondb.tree import Entry, role_of

COUNTS: Final = ("input", "output", "cacheRead", "cacheWrite", "premiumRequests")


def usage_statistics(entries: Iterable[Entry]) -> dict[str, Any]:
    """Sums of input, output, cacheRead, cacheWrite, premiumRequests (tokens, requests) and cost (US dollars).

    Counted are the usage of every assistant message, on whatever branch, and `details.usage` of every result of the
    tool `task`, which is what a subagent used. What is missing or no number counts 0.
    """
    totals: dict[str, Any] = dict.fromkeys((*COUNTS, "cost"), 0)
    for entry in entries:
        message = entry["message"]
        holder = message if role_of(entry) == "assistant" else message.get("details")
        usage = holder.get("usage") if type(holder) is dict else None
        if type(usage) is not dict:
            continue
        for name in COUNTS:
            totals[name] += _number(usage.get(name))
        cost = usage.get("cost")
        totals["cost"] += _number(cost.get("total")) if type(cost) is dict else 0
    return totals


def _number(value: Any) -> float:
    return value if type(value) in (int, float) else 0
