"""Session files from elsewhere, copied into a folder of sessions without ever taking a name that is in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sessiondb.file_storage import FileSessionStorage
from sessiondb.storage import SessionStorage


def copy_path(storage: SessionStorage, source: str, folder: str) -> str:
    """Where a copy of `source` in `folder` will be: its own name, else the first free one of `name-1.jsonl`, ….

    A file that lies there already is its own copy.
    """
    return next(path for path in _names(source, folder) if _is_same(source, path) or not _is_taken(storage, path))


def copy_into(storage: SessionStorage, source: str, folder: str) -> tuple[str, bool]:
    """Copy a file byte for byte, whole or not at all, on disk on return.

    Returns the path, as `copy_path` chooses it, and whether there is something new: the file may lie there already.
    """
    if not isinstance(storage, FileSessionStorage) and not storage.exists(source):
        text = FileSessionStorage().read_text(source)  # the storage holds sessions, the file comes from the disk
    else:
        text = storage.read_text(source)
    for path in _names(source, folder):
        if _is_same(source, path):
            return path, False
        if _take_name(storage, path):
            try:
                storage.write_text(path, text)
            except BaseException:
                with suppress(OSError):
                    storage.unlink(path)
                raise
            return path, True
    raise AssertionError("there is always another name")


def _names(source: str, folder: str) -> Iterator[str]:
    name = Path(source)
    yield str(Path(folder, name.name))
    number = 0
    while True:
        number += 1
        yield str(Path(folder, f"{name.stem}-{number}{name.suffix}"))


def _is_same(source: str, path: str) -> bool:
    if source == path:
        return True
    try:
        return os.path.samefile(source, path)  # noqa: PTH121 - paths are text here
    except OSError:
        return False


def _is_taken(storage: SessionStorage, path: str) -> bool:
    is_link = isinstance(storage, FileSessionStorage) and os.path.islink(path)  # noqa: PTH114 - paths are text here
    return is_link or storage.exists(path)


def _take_name(storage: SessionStorage, path: str) -> bool:
    """Whether the name was free and is now ours; another process may look for one, too."""
    if _is_taken(storage, path):
        return False
    if isinstance(storage, FileSessionStorage):
        storage.ensure_dir(Path(path).parent)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
    return True
