"""What xcsh keeps out of a session's lines, and how it comes back: long texts cut, images moved to the blobs.

The rules are the client's (xcsh 19.54.0, run); pi has none. omp has its own, and its entries are written whole: nothing
is lost by that. What xcsh would destroy on the way is kept: see `for_disk`.
"""

from __future__ import annotations

import binascii
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sessiondb.blobs import Blobs, is_digest
from sessiondb.errors import SessionDBWarning
from sessiondb.jsonl import UNSET

LONGEST_STRING: Final = 500_000
"""UTF-16 units; what is longer is cut to this length, or one less."""

NOTICE: Final = "\n\n[Session persistence truncated large content]"
SHORTEST_MOVED_IMAGE: Final = 1024
"""UTF-16 units of base64; a shorter image stays in the line."""

REFERENCE: Final = "blob:sha256:"
TRANSIENT: Final = frozenset({"partialJson", "jsonlEvents"})
"""What streaming leaves behind; never written."""

SIGNATURES: Final = frozenset({"thinkingSignature", "thoughtSignature", "textSignature"})
"""A cut signature would be refused by the provider, none at all is accepted."""

SIGNS: Final = re.compile(rb'"(?:partialJson"|jsonlEvents"|type":"image"|data:image/)')
"""What every line but an over-long one has when it is to change. One search for all is faster than one for each."""

BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
WHITE_SPACE: Final = b" \t\n\r\v\f"
NOT_BASE64: Final = bytes(set(range(256)) - set(BASE64))
TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


def needs_control(raw: bytes, *, dialect: str = "xcsh") -> bool:
    """Whether `for_disk` may change the entry whose line, as `encode_entry` writes it, is `raw`.

    False is certain; True costs a walk through the entry.
    """
    # a UTF-16 unit takes a byte at least, so a string that is too long makes the line too long
    return dialect == "xcsh" and (len(raw) > LONGEST_STRING or SIGNS.search(raw) is not None)


def needs_restoring(raw: bytes) -> bool:
    """Whether `from_disk` may change the entry of this line. False is certain."""
    return b"blob:sha256:" in raw


def for_disk(entry: Any, blobs: Blobs, *, dialect: str) -> Any:
    """What is written for the entry: the very same object when nothing changes, else a copy along the changed paths.

    The entry itself is never changed. It must be one that `encode_entry` takes, so one that does not contain itself.
    Images are in `blobs` when this returns; what `blobs.put` raises is passed on.

    What begins as a reference is never taken for base64, be it a good one or not, as in the client. Where xcsh would
    lose an image, it stays whole: `data` that is no base64 is left in the line, because decoded it would be other
    bytes; so is a URL that has no UTF-8; an image in one of omp's places (see `from_disk`) is moved where xcsh would
    cut it.
    """
    if dialect != "xcsh":
        return entry
    return _rewritten(entry, partial(_written, blobs), _recount_lines)


def from_disk(entry: Any, blobs: Blobs, *, on_missing: Callable[[str], None]) -> Any:
    """The entry with its images put back: the very same object when there are none, else copied as by `for_disk`.

    An image is `data` of an object of type `image` in an array under `content`, at any depth, and the text under
    `image_url`; in omp's lines also `data` in an array under `images`, and `result` of an `image_generation_call`. The
    same text anywhere else is text. Base64 comes back in its canonical form. A reference that no blob fits stays as it
    is, and `on_missing` gets its digest; what is not followed by 64 lower-case hex digits is no reference.
    """
    return _rewritten(entry, partial(_restored, blobs, on_missing), lambda _: None)


def restored(entry: Any, blobs: Blobs, where: str) -> Any:
    """As `from_disk`; a blob that is missing is a SessionDBWarning. Values that are no objects stay what they are."""

    def warn(digest: str) -> None:
        warnings.warn(f"{where}: the blob {digest} is missing; its reference stays", SessionDBWarning, stacklevel=2)

    return from_disk(entry, blobs, on_missing=warn) if type(entry) is dict else entry


def decode_base64(text: str) -> bytes:
    """The bytes that node's `Buffer.from(text, "base64")` gives: never an error.

    Both alphabets, padding or none; the first `=` ends it, every other character is passed over, and so is a last one
    that makes no byte.
    """
    body = text.partition("=")[0].encode("ascii", "ignore").translate(TO_STANDARD, NOT_BASE64)
    whole = body if len(body) % 4 != 1 else body[:-1]
    return binascii.a2b_base64(whole + b"=" * (-len(whole) % 4))


# The rules: what becomes of one member. UNSET drops it.


def _written(blobs: Blobs, place: _Place, name: str, value: Any) -> Any:
    if name in TRANSIENT:
        return UNSET
    kind = type(value)
    if kind is str:
        return _written_string(blobs, name, value)
    if kind is dict:
        return _written_object(blobs, name, value, in_list=type(place.value) is list)
    return value


def _written_string(blobs: Blobs, name: str, text: str) -> str:
    if name == "image_url" and _is_image_url(text):
        try:
            return REFERENCE + blobs.put(text.encode())
        except UnicodeEncodeError:  # a lone surrogate, which the blob's UTF-8 cannot give back
            pass
    if not _is_too_long(text):
        return text
    return "" if name in SIGNATURES else _cut(text)


def _written_object(blobs: Blobs, name: str, value: dict[str, Any], *, in_list: bool) -> dict[str, Any]:
    """An image with its bytes moved; its other members are as they are, whatever they hold, as in the client."""
    key = _image_key(name, value, in_list=in_list)
    if key is None:
        return value
    data = value.get(key)
    if type(data) is not str:
        return value
    shortest = SHORTEST_MOVED_IMAGE if name == "content" and key == "data" else LONGEST_STRING + 1
    if len(data) < shortest or not _is_base64(data):  # a reference is none: it has colons
        return value
    return {**value, key: REFERENCE + blobs.put(decode_base64(data))}


def _restored(blobs: Blobs, on_missing: Callable[[str], None], place: _Place, name: str, value: Any) -> Any:
    if type(value) is not str or not value.startswith(REFERENCE):
        return value
    is_url = name == "image_url"
    if not is_url and name != place.image_key():
        return value
    digest = value.removeprefix(REFERENCE)
    if not is_digest(digest):
        return value
    content = blobs.get(digest)
    text = None if content is None else _url_text(content) if is_url else _base64_text(content)
    if text is None:
        on_missing(digest)
        return value
    return text


def _image_key(name: str, value: dict[str, Any], *, in_list: bool) -> str | None:
    """The key under which an object at this place has an image's base64; None when it is no image."""
    kind = value.get("type")
    if in_list and (name == "content" or name == "images"):
        if kind == "image":
            return "data"
        mime = value.get("mimeType")
        if name == "images" and type(mime) is str and mime.lower().startswith("image/"):
            return "data"
    return "result" if kind == "image_generation_call" else None


def _recount_lines(changed: dict[str, Any]) -> None:
    content = changed.get("content")
    if type(content) is str and type(changed.get("lineCount")) in (int, float):
        changed["lineCount"] = content.count("\n") + 1


# Strings and images.


def _is_too_long(text: str) -> bool:
    if len(text) > LONGEST_STRING:
        return True
    if 2 * len(text) <= LONGEST_STRING or text.isascii():
        return False
    return len(text.encode("utf-16-le", "surrogatepass")) > 2 * LONGEST_STRING


def _cut(text: str) -> str:
    kept = LONGEST_STRING - len(NOTICE)
    units = text[:kept].encode("utf-16-le", "surrogatepass")[: 2 * kept]
    if 0xD8 <= units[-1] <= 0xDB:  # the first half of a pair
        units = units[:-2]
    return units.decode("utf-16-le", "surrogatepass") + NOTICE


def _is_image_url(text: str) -> bool:
    return text.startswith("data:image/") and ";base64," in text


def _is_base64(text: str) -> bool:
    """Whether decoding passes over white space and padding alone."""
    if not text.isascii():
        return False
    body, _, padding = text.encode().partition(b"=")
    return not body.translate(None, BASE64 + WHITE_SPACE) and not padding.strip(b"=" + WHITE_SPACE)


def _url_text(content: bytes) -> str | None:
    """The URL that `for_disk` put; None for other bytes, which would not be put again."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if _is_image_url(text) else None


def _base64_text(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode()


# The walk: level by level instead of by recursion, so that no depth is too much for it.


@dataclass(slots=True, eq=False)
class _Place:
    """An object or array of the entry, and where it is.

    `name` is the key it stands under, that of the array for what stands in one. `copy` is there once something changed.
    """

    above: _Place | None
    key: str | int
    name: str
    value: dict[str, Any] | list[Any]
    copy: Any = None

    def image_key(self) -> str | None:
        if self.above is None or type(self.value) is not dict:
            return None
        return _image_key(self.name, self.value, in_list=type(self.above.value) is list)

    def put(self, key: str | int, new: Any) -> None:
        """Change a member in the copy; UNSET drops it."""
        copy = self._copied()
        if new is UNSET:
            del copy[key]
        else:
            copy[key] = new

    def _copied(self) -> Any:
        below: _Place | None = None
        here: _Place | None = self
        while here is not None:
            is_first_change = here.copy is None
            if is_first_change:
                here.copy = here.value.copy()
            if below is not None:
                here.copy[below.key] = below.copy
            if not is_first_change:
                break
            below, here = here, here.above
        return self.copy


def _rewritten(root: Any, change: Callable[[_Place, str, Any], Any], finish: Callable[[dict[str, Any]], None]) -> Any:
    """The root with `change` asked for each member, and `finish` for each object that was copied.

    What `change` gives anew is not looked at again.
    """
    top = _Place(None, 0, "", [root])
    places = [top]
    for place in places:  # which grows meanwhile
        is_list = type(place.value) is list
        members: Any = enumerate(place.value) if is_list else place.value.items()  # type: ignore[union-attr]
        for key, value in members:
            name = place.name if is_list else key
            new = change(place, name, value)
            if new is not value:
                place.put(key, new)
            elif type(value) is dict or type(value) is list:
                places.append(_Place(place, key, name, value))
    for place in places:
        if type(place.copy) is dict:
            finish(place.copy)
    return root if top.copy is None else top.copy[0]
