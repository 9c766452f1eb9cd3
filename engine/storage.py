"""Where session files live: one protocol of file operations, and the rules of text and lines that all keep to.

Every call is synchronous. Text is UTF-8 with `surrogateescape` in both directions: a byte that is no UTF-8 is read as a
code point U+DC80…U+DCFF and written as that byte again, so what `read_text` gave can be written back without loss.
Newlines are never translated. Errors are the OSErrors that `open` raises; text with any other lone surrogate is a
UnicodeEncodeError.
"""

from __future__ import annotations

import codecs
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from sessiondb.places import LONGEST_NAME

AnyPath = str | os.PathLike[str]


class StorageStat(NamedTuple):
    """A file's size in bytes and the time of its last change in ms since 1970, with fractions where they are known.

    `file_id`: what tells the file from another that takes its name, where that is known.
    """

    size: int
    mtime_ms: float
    file_id: tuple[int, int] | None = None


class SessionStorageWriter(Protocol):
    """Adds lines to one file, in the order of the calls. The file is the one that was opened, also after a rename."""

    def write_line(self, line: str | bytes, /) -> None:
        """Write the line and its newline, given or not. The operating system has it on return.

        Raises the first error of the writer, now and at every later call: half a line may stand at the end of the
        file, and nothing may be added to that. ValueError, which is not remembered, when the line has a newline in it.
        """

    def flush(self) -> None:
        """Hand over what is buffered. Raises the first error of the writer."""

    def fsync(self) -> None:
        """Return when what was written survives a power cut. Raises the first error of the writer."""

    def close(self) -> None:
        """Release the file in any case, then raise the writer's first error if there is one. Again: does nothing."""

    def get_error(self) -> Exception | None:
        """The first error of the writer, or None."""


class SessionStorage(Protocol):
    """What a session manager needs of a file system. Folders of a file that is written or renamed are made.

    A missing file is a FileNotFoundError from `stat`, `read_text`, `read_text_prefix`, `rename` and `unlink`.
    """

    def ensure_dir(self, path: AnyPath, /) -> None:
        """Make the folder and those above it. NotADirectoryError when a file has the name."""

    def exists(self, path: AnyPath, /) -> bool:
        """Whether there is a file or folder; an OSError when that cannot be told."""

    def stat(self, path: AnyPath, /) -> StorageStat:
        """Size and time of a file."""

    def list_files(self, folder: AnyPath, /, pattern: str = "*.jsonl") -> list[str]:
        """Paths of the files in the folder, not below it, whose name matches, case counting, sorted.

        Each is the folder as given and the name. A missing folder has none. ValueError for a pattern with a `/`.
        """

    def read_text(self, path: AnyPath, /) -> str:
        """The whole file."""

    def read_text_prefix(self, path: AnyPath, /, max_bytes: int) -> str:
        """The first `max_bytes` bytes of the file as text; a character that is cut off there is read as U+FFFD."""

    def write_text(self, path: AnyPath, /, text: str) -> None:
        """Make `text` the content of the file, whole or not at all; on disk on return."""

    def rename(self, old: AnyPath, new: AnyPath, /) -> None:
        """Give a file, or a folder with all in it, another name, whole or not at all.

        A file replaces a file that has the name already; an OSError when a folder is on either side of that.
        """

    def unlink(self, path: AnyPath, /) -> None:
        """Remove the file."""

    def open_writer(self, path: AnyPath, /, *, append: bool = True) -> SessionStorageWriter:
        """Open a file for adding lines, made when missing; emptied first without `append`.

        A last line that lacks its newline gets it before the first line is added, so two lines are never glued.
        """


def write_lines_atomically(
    storage: SessionStorage, path: AnyPath, lines: Iterable[bytes | str], temporary: AnyPath | None = None
) -> None:
    """Make the lines, given without newlines, the content of the file, whole or not at all; on disk on return.

    Uses nothing but the protocol, so any storage will do, and holds one line at a time. `temporary`: where the file is
    written before it is renamed, `temporary_path(path)` unless given. When anything fails, `lines` included, the file
    is as it was, the temporary one is removed and the first error is raised.
    """
    temporary = temporary or temporary_path(path)
    writer = storage.open_writer(temporary, append=False)
    try:
        for line in lines:
            writer.write_line(line)
        writer.flush()
        writer.fsync()
        writer.close()
        storage.rename(temporary, path)
    except BaseException:
        with suppress(Exception):
            writer.close()
        with suppress(Exception):
            storage.unlink(temporary)
        raise


def temporary_path(path: AnyPath) -> str:
    """Where a file is written before it takes the name `path`: beside it, under a name that no listing of sessions has.

    The name is cut where a file system would refuse its length.
    """
    name = os.fsencode(Path(path).name)[:LONGEST_NAME].decode("utf-8", "ignore")
    return str(Path(path).with_name(f".{name}.{secrets.token_hex(6)}.tmp"))


def encode_text(text: str) -> bytes:
    """The bytes that `decode_text` gave the text of; UnicodeEncodeError for any other lone surrogate."""
    return text.encode("utf-8", "surrogateescape")


def decode_text(raw: bytes) -> str:
    """Any bytes as text, without loss."""
    return raw.decode("utf-8", "surrogateescape")


def decode_prefix(raw: bytes, max_bytes: int) -> str:
    """The text of the first `max_bytes` bytes; `raw` has one more when the file goes on."""
    if len(raw) <= max_bytes:
        return decode_text(raw)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    text = decoder.decode(raw[:max_bytes])
    cut_off, _ = decoder.getstate()
    return text + "\ufffd" if cut_off else text


def terminated(line: str | bytes) -> bytes:
    """The bytes of a line and its newline, whether it was given with that or without. ValueError for another inside."""
    raw = (line if isinstance(line, bytes) else encode_text(line)).removesuffix(b"\n")
    if b"\n" in raw:
        raise ValueError("a line has no newline in it but the one at its end")
    return raw + b"\n"


def require_name_pattern(pattern: str) -> None:
    """ValueError for what could match below the folder."""
    if "/" in pattern:
        raise ValueError(f"{pattern!r} must match names, without folders")


def os_error(code: int, path: AnyPath) -> OSError:
    """The error that `open` would raise."""
    return OSError(code, os.strerror(code), os.fspath(path))  # which Python makes a FileNotFoundError, …
