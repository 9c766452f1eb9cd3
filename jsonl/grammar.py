"""The JSON grammar of ``JSON.parse``, read without recursion.

orjson reads nearly every line; this parser takes those it refuses and JavaScript does not (lone surrogates, 1e400,
nesting beyond 1024) and says where a broken line breaks. It keeps its own stack, so its verdict never depends on how
deep the caller stands.
"""

from __future__ import annotations

import re
from _json import scanstring  # behind json.loads: refuses control characters, keeps lone surrogates
from json.decoder import JSONDecodeError
from typing import Any, Final

MAX_DEPTH: Final = 10_000
"""Objects and arrays inside each other that are read. JSON.parse has no limit, JSON.stringify one below 5,000."""

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, tuple[str, bool | None]]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}

_Holder = dict[str, Any] | list[Any]


class GrammarError(Exception):
    """The text is not JSON at `at` (an index into the text)."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


class TooDeepError(GrammarError):
    """The text nests deeper than `MAX_DEPTH`."""


def read_value(text: str, at: int) -> tuple[Any, int]:
    """Read the one value that starts at `at`, white space before it allowed; return it and the index behind it.

    Numbers are what orjson makes of them: an integer of up to 64 bits an int, any other number a float (inf for
    1e400). Raises `GrammarError`, and nothing else, for every text.
    """
    outer: list[tuple[_Holder | None, str]] = []  # the holders around the present one, each with the key it waits at
    holder: _Holder | None = None
    key = ""
    while True:
        at = skip_space(text, at)
        opening = text[at : at + 1]
        if opening in ("{", "["):
            value: Any = {} if opening == "{" else []
            if len(outer) == MAX_DEPTH:
                raise TooDeepError(f"nested deeper than {MAX_DEPTH}", at)
            at = skip_space(text, at + 1)
            if text[at : at + 1] == ("}" if opening == "{" else "]"):
                at += 1
            else:
                outer.append((holder, key))
                holder = value
                if opening == "{":
                    key, at = _read_key(text, at)
                continue
        else:
            value, at = _read_scalar(text, at)
        # `value` is whole: put it into its holder, and close every holder that ends here
        while True:
            if holder is None:
                return value, at
            at = skip_space(text, at)
            if isinstance(holder, dict):
                holder[key] = value
                closing = "}"
            else:
                holder.append(value)
                closing = "]"
            mark = text[at : at + 1]
            if mark == ",":
                at += 1
                if closing == "}":
                    key, at = _read_key(text, skip_space(text, at))
                break
            if mark != closing:
                raise _unexpected(text, at, f"',' or '{closing}'")
            at += 1
            value = holder
            holder, key = outer.pop()


def skip_space(text: str, at: int) -> int:
    """The index of the first character from `at` on that is not JSON's white space."""
    match = _SPACE.match(text, at)
    assert match is not None  # the pattern matches the empty string
    return match.end()


def _read_key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise _unexpected(text, at, "a key")
    key, at = _read_string(text, at)
    at = skip_space(text, at)
    if text[at : at + 1] != ":":
        raise _unexpected(text, at, "':'")
    return key, at + 1


def _read_scalar(text: str, at: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first == '"':
        return _read_string(text, at)
    if first in _WORDS:
        word, value = _WORDS[first]
        if text.startswith(word, at):
            return value, at + len(word)
    elif number := _NUMBER.match(text, at):
        return _number(number), number.end()
    raise _unexpected(text, at, "a value")


def _read_string(text: str, at: int) -> tuple[str, int]:
    try:
        return scanstring(text, at + 1, True)
    except JSONDecodeError as error:
        if error.msg.startswith("Unterminated"):
            # reported at the start of the string; what is wrong, and how far was read, is the end of the text
            raise GrammarError("string without an end", len(text)) from None
        raise GrammarError(error.msg.partition(" at")[0].rstrip(":").lower(), error.pos) from None


def _number(match: re.Match[str]) -> int | float:
    whole, fraction, exponent = match.groups()
    if fraction is None and exponent is None and len(whole) <= 20:  # 20 digits: the limit on int() for 4300 is far away
        value = int(whole)
        if -(2**63) <= value < 2**64:
            return value
    return float(match[0])


def _unexpected(text: str, at: int, wanted: str) -> GrammarError:
    found = ascii(text[at]) if at < len(text) else "the end of the line"
    return GrammarError(f"{found} where {wanted} should be", at)
