"""Old sessions to version 3, as the clients do it when they open a file."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Container
from typing import Any, Final

from .lines import strip_js
from .unset import UNSET, js_truthy

CURRENT_VERSION: Final = 3

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_RADIX_DIGITS: Final = {
    "0x": (16, re.compile("[0-9a-fA-F]+")),
    "0o": (8, re.compile("[0-7]+")),
    "0b": (2, re.compile("[01]+")),
}


def migrate(entries: list[Any], *, new_id: Callable[[int], str] | None = None) -> bool:
    """Bring the entries of a file, header included, to version 3 in place; True when the client would rewrite the file.

    The first header's version decides (none, or no header: 1), compared as JavaScript compares: ``"3"`` is new
    enough, and ``"abc"`` is neither new nor old: nothing is changed and yet True is returned. Keys added go to the
    end of an entry.

    `new_id` gives the id for the entry at an index of the list. Without it ids are derived (`derived_entry_id`) from
    the first header's id and, as line number, the index plus one: the line in a file without blank and broken lines.

    What is in the list and no object keeps its place, so that indexes count it, and is otherwise passed over: no id,
    and the next entry's parent is the object before it. (Clients fail on it or lose what they set.)
    """
    header: dict[str, Any] = next((entry for entry in entries if _is_header(entry)), {})
    version = header.get("version", UNSET)
    to_v2, to_v3 = migration_steps(version)
    if to_v2:
        _migrate_to_v2(entries, new_id or _deriving_ids(header.get("id")))
    if to_v3:
        _migrate_to_v3(entries)
    return is_outdated(version)


def migration_steps(header_version: Any) -> tuple[bool, bool]:
    """Which steps a session of this version takes: (to version 2, to version 3). `UNSET` and None are version 1."""
    number = _version_number(header_version)
    return number < 2, number < 3


def is_outdated(header_version: Any) -> bool:
    """Whether the client rewrites a file of this version: also when no step applies, as for ``"abc"``."""
    return not _version_number(header_version) >= CURRENT_VERSION  # a NaN is outdated; "< 3" would say it is not


def derived_entry_id(session_id: str, line: int, taken: Container[str]) -> str:
    """The id of an entry that came without one: the same file always gives the same ids.

    The first 8 hex digits of SHA-256 over the session id in UTF-8, a zero byte, and the line number in decimal. While
    that id is in `taken`, it is made again with a further zero byte and 1, 2, 3, … in decimal behind.
    """
    seed = session_id.encode("utf-8", "surrogatepass") + b"\0%d" % line
    entry_id = _short_hash(seed)
    bump = 0
    while entry_id in taken:
        bump += 1
        entry_id = _short_hash(seed + b"\0%d" % bump)
    return entry_id


def _migrate_to_v2(entries: list[Any], new_id: Callable[[int], str]) -> None:
    previous: str | None = None
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        if _is_header(entry):
            entry["version"] = 2
            continue
        entry["id"] = new_id(index)  # an id that is there is replaced, in its place
        entry["parentId"] = previous
        previous = entry["id"]
        if entry.get("type") == "compaction":
            _resolve_first_kept(entry, entries)


def _resolve_first_kept(compaction: dict[str, Any], entries: list[Any]) -> None:
    """Turn `firstKeptEntryIndex` into the id that its target has at this moment of the walk, as the clients do.

    The index counts the header. A later target has no id yet: the key goes. A later target with an old id gives that
    one, though it is about to be replaced. An index that is no number is left alone.
    """
    index = compaction.get("firstKeptEntryIndex")
    if isinstance(index, bool) or not isinstance(index, int | float):
        return
    if 0 <= index < len(entries) and index == math.floor(index):
        target = entries[int(index)]
        if js_truthy(target) and not _is_header(target):
            target_id = target.get("id", UNSET) if isinstance(target, dict) else UNSET
            if target_id is UNSET:
                compaction.pop("firstKeptEntryId", None)
            else:
                compaction["firstKeptEntryId"] = target_id
    del compaction["firstKeptEntryIndex"]


def _migrate_to_v3(entries: list[Any]) -> None:
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        if _is_header(entry):
            entry["version"] = CURRENT_VERSION
        elif entry.get("type") == "message":
            message = entry.get("message")
            if isinstance(message, dict) and message.get("role") == "hookMessage":
                message["role"] = "custom"


def _is_header(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("type") == "session"


def _deriving_ids(session_id: Any) -> Callable[[int], str]:
    taken: set[str] = set()
    seed = session_id if isinstance(session_id, str) else ""

    def new_id(index: int) -> str:
        entry_id = derived_entry_id(seed, index + 1, taken)
        taken.add(entry_id)
        return entry_id

    return new_id


def _short_hash(seed: bytes) -> str:
    return hashlib.sha256(seed).hexdigest()[:8]


def _version_number(version: Any) -> float:
    """The number that JavaScript compares when it compares ``version ?? 1`` with one; NaN answers no to everything."""
    if version is UNSET or version is None:
        return 1
    while isinstance(version, list):  # an array is compared as its text, and one with one item is that item's text
        if len(version) > 1 or (version and isinstance(version[0], bool)):
            return math.nan
        version = version[0] if version and version[0] is not None else ""
    if isinstance(version, str):
        return _number_of_text(strip_js(version))
    return version if isinstance(version, int | float) else math.nan


def _number_of_text(text: str) -> float:
    if not text:
        return 0
    radix, digits = _RADIX_DIGITS.get(text[:2].lower(), (10, _DECIMAL))
    if radix != 10:
        return int(text[2:], radix) if digits.fullmatch(text[2:]) else math.nan
    if _DECIMAL.fullmatch(text):
        return float(text)
    return {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}.get(text, math.nan)
