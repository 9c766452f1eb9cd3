"""Reads source files: never written, never waited for, hashed on the way. Makes the folders of what we write."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from sessiondb.jsonl import split_lines, strip_bom

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK: Final = 1 << 20


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing, each for its owner alone whatever the umask."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for f in reversed(missing):
        f.mkdir(mode=0o700, exist_ok=True)


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path, absolute and normal, `~` expanded, links in it kept as they are."""
    # expanduser: Path's raises for ~somebody who is not here, and a file may well have that name
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111 - Path.resolve() would follow links


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, unbuffered: whole chunks are read.

    OSError for anything else: a FIFO would be waited for, a device may have no end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _what_it_is(mode), str(path))
    return os.fdopen(descriptor, "rb", buffering=0)


def _what_it_is(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device") + ", not a regular file"


def hash_prefix(stream: BinaryIO, size: int) -> _Hash | None:
    """The hash of the stream's first `size` bytes; None when it is shorter. The stream then stands behind them."""
    hasher = hashlib.sha256()
    left = size
    while left:
        chunk = stream.read(min(CHUNK, left))
        if not chunk:
            return None
        hasher.update(chunk)
        left -= len(chunk)
    return hasher


class Hashed:
    """The next `left` bytes of a stream, hashed as they are read; what comes behind them is not seen.

    With a `mark`, `digest_at_mark` is the hash of the first so many bytes once they are read.
    """

    def __init__(self, stream: BinaryIO, hasher: _Hash, left: int, *, mark: int = 0) -> None:
        self._stream = stream
        self._hasher = hasher
        self._left = left
        self._to_mark = mark
        self.digest_at_mark = b""

    def read(self, size: int, /) -> bytes:
        chunk = self._stream.read(min(size, self._left, self._to_mark or size))
        self._hasher.update(chunk)
        self._left -= len(chunk)
        if self._to_mark:
            self._to_mark -= len(chunk)
            if not self._to_mark:
                self.digest_at_mark = self._hasher.digest()
        return chunk


def holds_an_object_line(stream: BinaryIO) -> bool:
    """Whether some line's first byte that is not blank is `{`. The stream is back at its start afterwards."""
    if stream.read(1) == b"{":  # as every client writes it
        stream.seek(0)
        return True
    stream.seek(0)
    found = any(strip_bom(line).lstrip().startswith(b"{") for line in split_lines(stream, chunk_size=CHUNK))
    stream.seek(0)
    return found
