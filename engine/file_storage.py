"""Session files on the disk."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from sessiondb.files import CHUNK, make_folder, open_regular
from sessiondb.storage import (
    AnyPath,
    SessionStorageWriter,
    StorageStat,
    decode_prefix,
    decode_text,
    encode_text,
    os_error,
    require_name_pattern,
    temporary_path,
    terminated,
)


class FileSessionStorage:
    """Session files on the disk.

    Files and folders it makes are their owner's alone (0600, 0700) whatever the umask; a file that is there keeps its
    mode, also when it is replaced, and a link to a file stays one. What is no regular file is neither read nor written
    (OSError), and a file that may not be written is not replaced either (PermissionError).
    """

    def ensure_dir(self, path: AnyPath) -> None:
        _make_folder(Path(path))

    def exists(self, path: AnyPath) -> bool:
        try:
            Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def stat(self, path: AnyPath) -> StorageStat:
        status = Path(path).stat()
        return StorageStat(status.st_size, status.st_mtime_ns / 1_000_000, (status.st_dev, status.st_ino))

    def list_files(self, folder: AnyPath, pattern: str = "*.jsonl") -> list[str]:
        """As in the protocol. Files are regular ones and links to such."""
        require_name_pattern(pattern)
        try:
            names = [name for name in os.listdir(folder) if fnmatchcase(name, pattern)]  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []
        return sorted(str(p) for p in (Path(folder, n) for n in names) if os.path.isfile(p))  # noqa: PTH113 - never raises

    def read_text(self, path: AnyPath) -> str:
        with open_regular(Path(path)) as stream:
            return decode_text(stream.read())

    def read_text_prefix(self, path: AnyPath, max_bytes: int) -> str:
        with open_regular(Path(path)) as stream:
            return decode_prefix(stream.read(max_bytes + 1), max_bytes)

    def write_text(self, path: AnyPath, text: str) -> None:
        _replace(_real(path), [encode_text(text)])

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        """As in the protocol; a file, not a folder, to another file system too."""
        source, target = Path(old), _real(new)
        is_folder = stat.S_ISDIR(source.lstat().st_mode)
        mode = _mode_of_existing(target)
        _make_folder(target.parent)
        if mode is not None and not is_folder:
            source.chmod(mode)
        try:
            source.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV or is_folder:
                raise
            _copy_over(source, target)
        for folder in dict.fromkeys((target.parent, source.parent)):
            _sync_folder(folder)

    def unlink(self, path: AnyPath) -> None:
        Path(path).unlink()

    def open_writer(self, path: AnyPath, *, append: bool = True) -> SessionStorageWriter:
        real = _real(path)
        try:
            writer = _FileWriter(real, _open_to_write(real), is_new=False)
        except FileNotFoundError:
            _make_folder(real.parent)
            writer = _FileWriter(real, _open_to_write(real, os.O_CREAT), is_new=True)
        if not append:
            writer.truncate()
        return writer


class _FileWriter:
    """A descriptor and the first error it gave."""

    def __init__(self, path: Path, descriptor: int, *, is_new: bool) -> None:
        self._path = path
        self._descriptor = descriptor
        self._release = weakref.finalize(self, os.close, descriptor)  # also for a writer that nobody closed
        self._folder_to_sync = path.parent if is_new else None
        self._at_line_start = False
        self._error: OSError | None = None
        if is_new:
            os.fchmod(descriptor, 0o600)

    def truncate(self) -> None:
        os.ftruncate(self._descriptor, 0)

    def write_line(self, line: str | bytes) -> None:
        self._require_sound()
        raw = terminated(line)
        try:
            if not self._at_line_start and self._ends_inside_a_line():
                raw = b"\n" + raw
            self._at_line_start = False  # should a signal handler raise between two short writes, the next call looks
            _write_whole(self._descriptor, raw)
            self._at_line_start = True
        except OSError as error:
            self._latch(error)
            raise

    def flush(self) -> None:
        self._require_sound()  # nothing is ever buffered

    def fsync(self) -> None:
        self._require_sound()
        try:
            os.fsync(self._descriptor)
            if self._folder_to_sync is not None:  # else a power cut could take the name of a new file
                _sync_folder(self._folder_to_sync)
                self._folder_to_sync = None
        except OSError as error:
            self._latch(error)
            raise

    def close(self) -> None:
        was_open = self._release.alive
        try:
            self._release()
        except OSError as error:
            self._latch(error)
        if was_open and self._error is not None:
            raise self._error

    def get_error(self) -> OSError | None:
        return self._error

    def _require_sound(self) -> None:
        if self._error is not None:
            raise self._error
        if not self._release.alive:
            raise ValueError(f"the writer of {self._path} is closed")

    def _latch(self, error: OSError) -> None:
        if self._error is None:
            error.filename = error.filename or str(self._path)
            self._error = error

    def _ends_inside_a_line(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        return size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"


def _real(path: AnyPath) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for links in a ring; opening this, OSError


def _make_folder(folder: Path) -> None:
    holders = [f.parent for f in (folder, *folder.parents) if not f.exists()]
    make_folder(folder)
    if not folder.is_dir():
        raise os_error(errno.ENOTDIR, folder)
    for holder in holders:
        _sync_folder(holder)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, where the file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _open_to_write(path: Path, more_flags: int = 0) -> int:
    """A descriptor that appends to a regular file, and reads it: how its last line ends must be seen."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | more_flags
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def _mode_of_existing(path: Path) -> int | None:
    """The mode of a file that may be replaced; None when there is none."""
    try:
        descriptor = _open_to_write(path)
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    return mode


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    """Make the pieces the content of the file: beside it, onto the disk, then the name."""
    mode = _mode_of_existing(path)
    _make_folder(path.parent)
    temporary = Path(temporary_path(path))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.fchmod(descriptor, 0o600 if mode is None else mode)
            for piece in pieces:
                _write_whole(descriptor, piece)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _copy_over(source: Path, target: Path) -> None:
    with open_regular(source) as stream:
        _replace(target, iter(lambda: stream.read(CHUNK), b""))
    source.unlink()


def _write_whole(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]  # less than it was given on a disk that is nearly full
