"""Where session files live: one protocol of file operations, on the disk and in memory. Every call is synchronous.

Text is UTF-8 with `surrogateescape` in both directions: a byte that is no UTF-8 is read as a code point U+DC80…U+DCFF
and written as that byte again, so what `read_text` gave can be written back without loss. Newlines are never
translated. Errors are the OSErrors that `open` raises; text with any other lone surrogate is a UnicodeEncodeError.
"""

from __future__ import annotations

import codecs
import errno
import os
import secrets
import stat
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Protocol

from sessiondb.files import CHUNK, make_folder, open_regular
from sessiondb.places import LONGEST_NAME

AnyPath = str | os.PathLike[str]


class StorageStat(NamedTuple):
    """A file's size in bytes and the time of its last change in ms since 1970, with fractions where they are known."""

    size: int
    mtime_ms: float


class SessionStorageWriter(Protocol):
    """Adds lines to one file, in the order of the calls. The file is the one that was opened, also after a rename."""

    def write_line(self, line: str | bytes, /) -> None:
        """Write the line, given without its newline, and a newline. The operating system has it on return.

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
    storage: SessionStorage, path: AnyPath, lines: Iterable[bytes | str], temporary_path: AnyPath | None = None
) -> None:
    """Make the lines, given without newlines, the content of the file, whole or not at all; on disk on return.

    Uses nothing but the protocol, so any storage will do, and holds one line at a time. `temporary_path`: where the
    file is written before it is renamed, beside `path` unless given. When anything fails, `lines` included, the file is
    as it was, the temporary one is removed and the first error is raised.
    """
    temporary = temporary_path or Path(path).with_name(_temporary_name(path))
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
        return StorageStat(status.st_size, status.st_mtime_ns / 1_000_000)

    def list_files(self, folder: AnyPath, pattern: str = "*.jsonl") -> list[str]:
        """As in the protocol. Files are regular ones and links to such."""
        _require_name_pattern(pattern)
        try:
            names = [name for name in os.listdir(folder) if fnmatchcase(name, pattern)]  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []
        return sorted(str(p) for p in (Path(folder, n) for n in names) if os.path.isfile(p))  # noqa: PTH113 - never raises

    def read_text(self, path: AnyPath) -> str:
        with open_regular(Path(path)) as stream:
            return _decode(stream.read())

    def read_text_prefix(self, path: AnyPath, max_bytes: int) -> str:
        with open_regular(Path(path)) as stream:
            return _decode_prefix(stream.read(max_bytes + 1), max_bytes)

    def write_text(self, path: AnyPath, text: str) -> None:
        _replace(_real(path), [_encode(text)])

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
        raw = _terminated(line)
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
        raise _failure(errno.ENOTDIR, folder)
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
    temporary = path.with_name(_temporary_name(path))
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


def _temporary_name(path: AnyPath) -> str:
    """A name beside the file that no listing of sessions takes up; cut where a file system would refuse its length."""
    name = os.fsencode(Path(path).name)[:LONGEST_NAME].decode("utf-8", "ignore")
    return f".{name}.{secrets.token_hex(6)}.tmp"


def _write_whole(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]  # less than it was given on a disk that is nearly full


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
            raise _failure(errno.ENOTDIR, path)
        self._folders.update(names)

    def exists(self, path: AnyPath) -> bool:
        return _key(path) in self._files or _key(path) in self._folders

    def stat(self, path: AnyPath) -> StorageStat:
        file = self._file(path)
        return StorageStat(len(file.content), file.mtime_ms)

    def list_files(self, folder: AnyPath, pattern: str = "*.jsonl") -> list[str]:
        _require_name_pattern(pattern)
        parent = _key(folder)
        if parent in self._files:
            raise _failure(errno.ENOTDIR, folder)
        names = [Path(key).name for key in self._files if str(Path(key).parent) == parent]
        return sorted(str(Path(folder, name)) for name in names if fnmatchcase(name, pattern))

    def read_text(self, path: AnyPath) -> str:
        return _decode(bytes(self._file(path).content))

    def read_text_prefix(self, path: AnyPath, max_bytes: int) -> str:
        return _decode_prefix(bytes(self._file(path).content[: max_bytes + 1]), max_bytes)

    def write_text(self, path: AnyPath, text: str) -> None:
        self._put(path, _MemoryFile(bytearray(_encode(text)), self._clock()))

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
            raise _failure(errno.EEXIST, new)
        if target.startswith(source + "/"):
            raise _failure(errno.EINVAL, new)
        self.ensure_dir(Path(target).parent)

        def renamed(key: str) -> str:
            return target + key.removeprefix(source) if (key + "/").startswith(source + "/") else key

        self._files = {renamed(key): file for key, file in self._files.items()}
        self._folders = {renamed(key) for key in self._folders}

    def _file(self, path: AnyPath) -> _MemoryFile:
        if _key(path) in self._folders:
            raise _failure(errno.EISDIR, path)
        file = self._files.get(_key(path))
        if file is None:
            raise _failure(errno.ENOENT, path)
        return file

    def _put(self, path: AnyPath, file: _MemoryFile) -> None:
        if _key(path) in self._folders:
            raise _failure(errno.EISDIR, path)
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
        raw = _terminated(line)
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


def _require_name_pattern(pattern: str) -> None:
    if "/" in pattern:
        raise ValueError(f"{pattern!r} must match names, without folders")


def _terminated(line: str | bytes) -> bytes:
    raw = line if isinstance(line, bytes) else _encode(line)
    if b"\n" in raw:
        raise ValueError("a line has no newline in it; the writer adds the one behind it")
    return raw + b"\n"


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _decode_prefix(raw: bytes, max_bytes: int) -> str:
    """The text of the first `max_bytes` bytes; `raw` has one more when the file goes on."""
    if len(raw) <= max_bytes:
        return _decode(raw)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    text = decoder.decode(raw[:max_bytes])
    cut_off, _ = decoder.getstate()
    return text + "\ufffd" if cut_off else text


def _failure(code: int, path: AnyPath) -> OSError:
    return OSError(code, os.strerror(code), os.fspath(path))  # which Python makes a FileNotFoundError, …
