"""The sessions of coding agents as JSONL: bytes to lines to entries, and back. FORMAT.md is the document.

Usable without the rest of the package: it opens no file and knows no database. What cannot be read is a value
(`Fault`), never an exception.
"""

from .encode import encode_entry
from .faults import NOTHING, Fault, FaultKind, Nothing, Piece
from .grammar import MAX_DEPTH
from .lines import JS_WHITESPACE, is_blank, is_utf8, split_lines, strip_bom, strip_js
from .migrate import CURRENT_VERSION, derived_entry_id, is_outdated, migrate, migration_steps
from .times import format_time, js_time, parse_time
from .title_slot import TITLE_SLOT_SIZE, encode_title_slot, header_with_slot, parse_title_slot
from .unset import UNSET, Unset, js_truthy
from .values import parse_line

__all__ = [
    "CURRENT_VERSION",
    "JS_WHITESPACE",
    "MAX_DEPTH",
    "NOTHING",
    "TITLE_SLOT_SIZE",
    "UNSET",
    "Fault",
    "FaultKind",
    "Nothing",
    "Piece",
    "Unset",
    "derived_entry_id",
    "encode_entry",
    "encode_title_slot",
    "format_time",
    "header_with_slot",
    "is_blank",
    "is_outdated",
    "is_utf8",
    "js_time",
    "js_truthy",
    "migrate",
    "migration_steps",
    "parse_line",
    "parse_time",
    "parse_title_slot",
    "split_lines",
    "strip_bom",
    "strip_js",
]
