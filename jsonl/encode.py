"""One value to the bytes ``JSON.stringify`` writes for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from json.encoder import encode_basestring as quote  # escapes exactly what JavaScript escapes, surrogates apart
from typing import Any, Final

import orjson

from .unset import UNSET

_EXACT: Final = 2**53
"""The largest magnitude up to which every integer is a double."""

_LAST_INDEX: Final = 2**32 - 2
"""The largest array index of ECMAScript; "4294967295" is an ordinary key."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_entry(value: Any) -> bytes:
    """The bytes of ``JSON.stringify(value)``, without a newline.

    `value` is made of dict (str keys), list, str, int, float, bool, None and `UNSET`, nested as deeply as you like.
    Integers pass through a double as every JavaScript number does; inf and nan are null; keys that are array indexes
    come first, ascending; adjacent surrogates are joined and lone ones escaped; `UNSET` is left out of objects, null
    in arrays. Raises TypeError for anything else, as also for `UNSET` itself and for a value that contains itself.
    """
    try:
        return orjson.dumps(_for_orjson(value))
    except (TypeError, RecursionError):
        # a lone surrogate, more levels than orjson or the stack has, or no JSON at all: the long way tells
        return "".join(_encode(value)).encode()


# orjson writes what JavaScript writes, except for some numbers, for index keys and for lone surrogates. The walk below
# hands back the very same object where nothing differs, so that an ordinary entry is not copied at all.


def _for_orjson(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return _dict_for_orjson(value)
    if kind is list:
        return _list_for_orjson(value)
    if kind is float:
        # measured against node: orjson differs on integral values and between 1e-6 and 1e-5
        size = -value if value < 0.0 else value
        if (1e-5 <= size < 4503599627370496.0 and size % 1.0) or 0.0 < size < 1e-6:
            return value
        return orjson.Fragment(_float_text(value))
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else orjson.Fragment(_int_text(value))
    if kind is str or kind is bool or value is None:
        return value
    raise TypeError(f"{kind.__name__} is no JSON value")  # orjson would accept dates, enums and more


def _dict_for_orjson(source: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] | None = None
    indexed = False
    for key, value in source.items():
        if key < ":" and key and not indexed:  # ":" follows "9": most keys end here
            indexed = _is_index(key)
        kind = type(value)
        if kind is str or kind is bool or value is None:
            continue
        if kind is int and -_EXACT <= value <= _EXACT:
            continue
        if value is UNSET:
            changed = dict(source) if changed is None else changed
            del changed[key]
            continue
        fixed = _for_orjson(value)
        if fixed is not value:
            changed = dict(source) if changed is None else changed
            changed[key] = fixed
    result = source if changed is None else changed
    return _index_keys_first(result) if indexed else result


def _list_for_orjson(source: list[Any]) -> list[Any]:
    changed: list[Any] | None = None
    for position, value in enumerate(source):
        if type(value) is str:
            continue
        fixed = None if value is UNSET else _for_orjson(value)
        if fixed is not value:
            changed = list(source) if changed is None else changed
            changed[position] = fixed
    return source if changed is None else changed


# The long way: every rule in Python, without recursion.


def _encode(root: Any) -> Iterator[str]:
    walks: list[Iterator[tuple[str, Any]]] = [iter((("", root),))]
    closings = [""]
    open_ids: list[int] = [0]
    around: set[int] = set()  # the same ids, for looking up: a value inside itself would never end
    while walks:
        for before, value in walks[-1]:
            yield before
            kind = type(value)
            if kind is dict or kind is list:
                if id(value) in around:
                    raise TypeError("a value contains itself")
                around.add(id(value))
                open_ids.append(id(value))
                yield "{" if kind is dict else "["
                walks.append(_members(value) if kind is dict else _items(value))
                closings.append("}" if kind is dict else "]")
                break
            yield _scalar_text(value)
        else:
            walks.pop()
            around.discard(open_ids.pop())
            yield closings.pop()


def _members(source: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    comma = ""
    for key in source:
        if type(key) is not str:
            raise TypeError(f"a key is {type(key).__name__}, not str")
    for key, value in _index_keys_first(source).items():
        if value is not UNSET:
            yield f"{comma}{_string_text(key)}:", value
            comma = ","


def _items(source: list[Any]) -> Iterator[tuple[str, Any]]:
    comma = ""
    for value in source:
        yield comma, None if value is UNSET else value
        comma = ","


def _scalar_text(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return _string_text(value)
    if kind is int:
        return _int_text(value)
    if kind is float:
        return _float_text(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    raise TypeError(f"{kind.__name__} is no JSON value")


def _string_text(value: str) -> str:
    quoted = quote(value)
    if quoted.isascii() or not _SURROGATE.search(quoted):
        return quoted
    joined = quoted.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", joined)


def _int_text(value: int) -> str:
    if -_EXACT <= value <= _EXACT:
        return str(value)
    try:
        return _float_text(float(value))
    except OverflowError:
        return "null"


def _float_text(value: float) -> str:
    """ECMAScript's Number::toString, null for what is not finite. Python finds the same digits, laid out otherwise."""
    if not math.isfinite(value):
        return "null"
    if value == 0.0:
        return "0"
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # the value is 0.DIGITS * 10**point
    point = len(digits) - len(fraction) + int(exponent or "0")
    digits = digits.rstrip("0")
    return ("-" if value < 0.0 else "") + _lay_out(digits, point)


def _lay_out(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    power = f"e{point - 1:+d}"
    return f"{digits[0]}.{digits[1:]}{power}" if len(digits) > 1 else digits + power


def _is_index(key: str) -> bool:
    if key == "0":
        return True
    return len(key) <= 10 and key.isascii() and key.isdigit() and key[0] != "0" and int(key) <= _LAST_INDEX


def _index_keys_first(source: dict[str, Any]) -> dict[str, Any]:
    indexes = sorted((key for key in source if _is_index(key)), key=int)
    if not indexes:
        return source
    return {key: source[key] for key in indexes} | source
