"""Session files in memory: for sessions that need no disk, and for tests."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sessiondb.storage import (
    AnyPath,
    SessionStorageWriter,
    StorageStat,
    decode_prefix,
    decode_text,
    encode_text,
    os_error,
    require_name_pattern,
    terminated,
)


class MemorySessionStorage:
    """Session files in a dictionary, gone with it. One serves any number of sessions, in one thread.

    `clock` gives the ms since 1970 that a change is dated with.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock or _now_ms
        self._files: dict[str, _MemoryFile] = {}
        self._folders: set[str] = set()

    def ensure_dir(self, path: AnyPath) -> None:
        folder = Path(_key(path))
        names = [str(f) for f in (folder, *folder.parents)]
        if any(name in self._files for name in names):
            raise os_error(errno.ENOTDIR, path)
        self._folders.update(names)

    def exists(self, path: AnyPath) -> bool:
        return _key(path) in self._files or _key(path) in self._folders

    def stat(self, path: AnyPath) -> StorageStat:
        file = self._file(path)
        return StorageStat(len(file.content), file.mtime_ms)

    def list_files(self, folder: AnyPath, pattern: str = "*.jsonl") -> list[str]:
        require_name_pattern(pattern)
        parent = _key(folder)
        if parent in self._files:
            raise os_error(errno.ENOTDIR, folder)
        names = [Path(key).name for key in self._files if str(Path(key).parent) == parent]
        return sorted(str(Path(folder, name)) for name in names if fnmatchcase(name, pattern))

    def read_text(self, path: AnyPath) -> str:
        return decode_text(bytes(self._file(path).content))

    def read_text_prefix(self, path: AnyPath, max_bytes: int) -> str:
        return decode_prefix(bytes(self._file(path).content[: max_bytes + 1]), max_bytes)

    def write_text(self, path: AnyPath, text: str) -> None:
        self._put(path, _MemoryFile(bytearray(encode_text(text)), self._clock()))

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        if _key(old) in self._folders:
            self._rename_folder(old, new)
            return
        file = self._file(old)
        self._put(new, file)
        if _key(old) != _key(new):
            del self._files[_key(old)]

    def unlink(self, path: AnyPath) -> None:
        self._file(path)
        del self._files[_key(path)]

    def open_writer(self, path: AnyPath, *, append: bool = True) -> SessionStorageWriter:
        if _key(path) not in self._files:
            self._put(path, _MemoryFile(bytearray(), self._clock()))
        file = self._file(path)
        if not append:
            file.content.clear()
        return _MemoryWriter(file, self._clock)

    def _rename_folder(self, old: AnyPath, new: AnyPath) -> None:
        source, target = _key(old), _key(new)
        if self.exists(new):
            raise os_error(errno.EEXIST, new)
        if target.startswith(source + "/"):
            raise os_error(errno.EINVAL, new)
        self.ensure_dir(Path(target).parent)

        def renamed(key: str) -> str:
            return target + key.removeprefix(source) if (key + "/").startswith(source + "/") else key

        self._files = {renamed(key): file for key, file in self._files.items()}
        self._folders = {renamed(key) for key in self._folders}

    def _file(self, path: AnyPath) -> _MemoryFile:
        if _key(path) in self._folders:
            raise os_error(errno.EISDIR, path)
        file = self._files.get(_key(path))
        if file is None:
            raise os_error(errno.ENOENT, path)
        return file

    def _put(self, path: AnyPath, file: _MemoryFile) -> None:
        if _key(path) in self._folders:
            raise os_error(errno.EISDIR, path)
        self.ensure_dir(Path(_key(path)).parent)
        self._files[_key(path)] = file


@dataclass(slots=True)
class _MemoryFile:
    content: bytearray
    mtime_ms: float


class _MemoryWriter:
    """Never has an error of its own; otherwise as the one of a file."""

    def __init__(self, file: _MemoryFile, clock: Callable[[], int]) -> None:
        self._file: _MemoryFile | None = file
        self._clock = clock

    def write_line(self, line: str | bytes) -> None:
        file = self._require_open()
        raw = terminated(line)
        if file.content and not file.content.endswith(b"\n"):
            raw = b"\n" + raw
        file.content += raw
        file.mtime_ms = self._clock()

    def flush(self) -> None:
        self._require_open()

    def fsync(self) -> None:
        self._require_open()

    def close(self) -> None:
        self._file = None

    def get_error(self) -> None:
        return None

    def _require_open(self) -> _MemoryFile:
        if self._file is None:
            raise ValueError("the writer is closed")
        return self._file


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(path: AnyPath) -> str:
    return os.path.normpath(Path(path).absolute())
