"""A live session in a JSONL file, in place, as its agent keeps it: the agent can go on with it afterwards.

Safer than the agents where they lose something: an append never joins an unterminated line, a rewrite keeps lines that
hold no entry, nothing is written over what another program wrote meanwhile, and bytes that cannot be kept in the file
are put beside it first. jsonl/FORMAT.md has the rows.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from sessiondb import size_control
from sessiondb.blobs import Blobs
from sessiondb.errors import NotSupportedError, SessionWriteConflictError, SessionWriteError
from sessiondb.homes import NAMING_KEYS, fresh_metadata, last_id, note, with_changes
from sessiondb.jsonl import encode_entry, header_with_slot, parse_title_slot, split_lines, strip_bom
from sessiondb.metadata import Metadata, text_of
from sessiondb.places import file_name
from sessiondb.session_lines import SessionLines, encode_line, read_session_lines
from sessiondb.storage import (
    SessionStorage,
    SessionStorageWriter,
    StorageStat,
    decode_text,
    encode_text,
    write_lines_atomically,
)
from sessiondb.tree import Entry, MemoryTree

log = logging.getLogger("sessiondb")

NewId = Callable[[], str]

HEADER_BYTES: Final = 4096
"""How much of a file is read to see whose it is."""


class FileHome:
    """One session and the file at `path`. `folder` is where sessions beside it go.

    `durable`: `flush` reaches the disk, not only the operating system.
    """

    def __init__(
        self, path: str, folder: str, storage: SessionStorage, blobs: Blobs, session: SessionLines,
        metadata: Metadata, *, durable: bool,
    ) -> None:  # fmt: skip
        assert session.header is not None
        self.path, self.folder = path, folder
        self.dialect = metadata.dialect[0]
        self.header = session.header
        self.metadata = metadata
        self.tree = MemoryTree(session.entries)
        self._others = session.others
        self._title_slot = session.title_slot
        self._derived_ids = session.derived_ids
        self._storage, self._blobs, self._durable = storage, blobs, durable
        self._held: list[Entry] = []
        self._content: _Content | None = None  # what the file holds, as far as we know; None: not written yet
        self._seen: StorageStat | None = None  # when we looked last
        self._keeps_bytes = True  # every byte of the file can be written again from what is in memory
        self._writer: SessionStorageWriter | None = None
        self._error: SessionWriteError | None = None
        self._refused: NotSupportedError | None = None
        self._asides: list[str] = []  # where this home put bytes that it could not keep
        self.undo: Callable[[], object] | None = None
        """What `discard` does to the file; None for one that was there before."""

    @property
    def location(self) -> str:
        return self.path

    @property
    def is_written(self) -> bool:
        return self._content is not None

    def hold(self, entry: Entry) -> None:
        self._raise_first_error()
        self._take(entry)
        self._held.append(entry)

    def _take(self, entry: Any) -> None:
        note(self.metadata, entry)
        self.tree.add(entry)

    def write_held(self) -> None:
        if self._content is None:
            self._write_all()
        elif self._held:
            self._look()
            self._write_lines(self._held)
        self._held = []

    def append(self, entry: Entry) -> None:
        self._raise_first_error()
        encode_line(entry)  # what cannot be written is no part of the session
        self._look(entry)
        self._take(entry)
        self._write_lines([entry])

    def revise(self, header: Entry, changed: Iterable[Entry] = ()) -> None:
        self.header = header
        self.tree = with_changes(self.tree, changed)

    def rewrite(self) -> None:
        self._raise_first_error()
        self._held = []
        self._write_all()

    def take_back(self) -> bool:
        return False  # what a file does not take is in memory all the same

    def set_title_slot(self, slot: bytes, header: Entry) -> None:
        had_one, self._title_slot, self.header = self._title_slot is not None, slot, header
        if self._content is None:
            return
        with self._first_error():
            raw = self._require_unchanged()
            self._close_writer()
            rest = raw[raw.index(b"\n") + 1 :] if had_one else strip_bom(raw)
            self._storage.write_text(self.path, decode_text(slot + rest))
            self.note_file(slot + rest, keeps_bytes=self._keeps_bytes)

    def note_leaf(self, leaf_id: str | None) -> None:
        pass

    def saved_leaf(self) -> str | None:
        return last_id(self.tree)

    def beside(self, header: Entry, entries: Iterable[Any], *, title_slot: bytes | None = None) -> FileHome:
        path = os.path.join(self.folder, file_name(header["id"], header["timestamp"]))  # noqa: PTH118 - paths are text here
        return new_file_home(
            path, self.folder, self._storage, self._blobs, header, entries, fresh_metadata(self.metadata, header),
            title_slot=title_slot, durable=self._durable,
        )  # fmt: skip

    def move(self, path: str, folder: str, header: Entry) -> None:
        """Go on at another path: written there with the header, then removed here; its artifacts' folder moves along.

        When that fails the session stays where and as it was.
        """
        self._raise_first_error()
        self._close_writer()
        before = (self.path, self.folder, self.header, self._content, self._seen)
        moves = self._content is not None and not self._is_here(path)
        if moves:
            self._require_unchanged()
            if self._storage.exists(path):
                raise FileExistsError(f"{path} exists and was left as it is; the session was not moved")
            self._content = None
        was_written = before[3] is not None
        self.path, self.folder, self.header = path, folder, header
        try:
            if was_written:
                self._write_all()
            if moves:
                self._move_artifacts(before[0], path)
        except OSError:
            self.path, self.folder, self.header, self._content, self._seen = before
            if moves:
                with suppress(OSError):
                    self._storage.unlink(path)
            raise
        if moves:
            with suppress(FileNotFoundError):
                self._storage.unlink(before[0])

    def _is_here(self, path: str) -> bool:
        if path == self.path:
            return True
        try:
            here, there = self._storage.stat(self.path), self._storage.stat(path)
        except FileNotFoundError:
            return False
        return here.file_id is not None and here.file_id == there.file_id

    def _move_artifacts(self, old: str, new: str) -> None:
        if self._storage.exists(old.removesuffix(".jsonl")):
            self._storage.rename(old.removesuffix(".jsonl"), new.removesuffix(".jsonl"))

    def flush(self) -> None:
        if self._error is not None:
            raise self._error
        if self._writer is not None:
            with self._first_error():
                self._writer.flush()
                if self._durable:
                    self._writer.fsync()

    def discard(self) -> None:
        self._close_writer()
        if self.undo is not None and self._content is not None:
            self._require_unchanged()
            self.undo()
            self._content = None

    def close(self) -> None:
        try:
            self._close_writer()
        except OSError as error:
            self._latch(error)
        if self._error is not None:
            raise self._error

    def note_file(self, raw: bytes, *, keeps_bytes: bool) -> None:
        """The file holds these bytes; `keeps_bytes`: a rewrite can give all of them back."""
        self._content = _Content()
        self._content.add(raw)
        self._seen, self._keeps_bytes = self._stat(), keeps_bytes

    def remove(self) -> None:
        """Remove the file, wherever it is by now, and what was put beside it."""
        for aside in self._asides:
            self._storage.unlink(aside)
        self._storage.unlink(self.path)

    def note_copy(self) -> None:
        """The file was copied here for this session: `discard` removes it, whatever has become of it."""
        earlier = self.undo

        def undo() -> None:
            if earlier is not None:
                earlier()
            self.remove()

        self.undo = undo

    def refuse_writes(self, call: str) -> None:
        """Raise NotSupportedError at every write: the dialect's bytes are not known well enough."""
        self._refused = NotSupportedError(call, self.dialect, ())

    # -- writing -------------------------------------------------------------------------------------------------

    def _encode(self, value: Any) -> bytes:
        raw = encode_line(value)
        if not size_control.needs_control(raw, dialect=self.dialect):
            return raw
        controlled = size_control.for_disk(value, self._blobs, dialect=self.dialect)
        return raw if controlled is value else encode_line(controlled)

    def _look(self, entry: Entry | None = None) -> None:
        """Look at the file before an append: raises when it is no longer the session's, or may not be written again."""
        found = self._stat()
        if entry is not None and self._names_derived_id(entry):
            self._require_unchanged()
        elif found is not None and found != self._seen and self._content is not None:
            # Somebody else appends too, or put another file there: this session's, one hopes.
            if 0 < found.size < self._content.size or (found.size and not self._is_this_session()):
                raise SessionWriteConflictError(self.path, self._content.size, found.size)
            self._close_writer()
        self._seen = found

    def _is_this_session(self) -> bool:
        first = self._storage.read_text_prefix(self.path, HEADER_BYTES)
        return encode_entry(self.header["id"]).decode() in first

    def _names_derived_id(self, entry: Entry) -> bool:
        """Whether the entry names an id that its file does not have, since the entry came without one."""
        return any(text_of(entry.get(key)) in self._derived_ids for key in NAMING_KEYS)

    def _write_lines(self, entries: Sequence[Entry]) -> None:
        gone = self._seen is None or not self._seen.size  # removed or emptied: what is in memory makes it whole again
        if gone or self._content is None or any(map(self._names_derived_id, entries)):
            if gone:
                self._content = None
            self._close_writer()
            self._write_all()
            return
        with self._first_error():
            lines = [self._encode(entry) for entry in entries]
            self._writer = writer = self._writer or self._storage.open_writer(self.path, append=True)
            self._content.end_line()  # as the writer does
            for line in lines:
                writer.write_line(line)
                self._content.add(line + b"\n")
            writer.flush()
            self._seen = self._stat()

    def _write_all(self) -> None:
        with self._first_error():
            self._require_unchanged()
            self._close_writer()
            if not self._keeps_bytes:
                self._asides.append(put_aside(self._storage, self.path))
                self._keeps_bytes = True
            session = SessionLines(self.header, self.tree.entries(), self._others, self._title_slot)
            self._storage.ensure_dir(os.path.dirname(self.path))  # noqa: PTH120
            content = _Content()
            write_lines_atomically(self._storage, self.path, content.noting(session.lines(self._encode)))
            self._content, self._seen, self._derived_ids = content, self._stat(), set()

    def _stat(self) -> StorageStat | None:
        try:
            return self._storage.stat(self.path)
        except FileNotFoundError:
            return None

    def _require_unchanged(self) -> bytes:
        """The bytes of the file, which nobody else has changed; none when it is not there."""
        known = self._content or _Content()
        found = self._stat()
        if found is None:
            return b""
        raw = encode_text(self._storage.read_text(self.path)) if found.size == known.size else b""
        if found.size != known.size or not known.is_of(raw):
            raise SessionWriteConflictError(self.path, known.size, found.size)
        return raw

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # -- the first error -----------------------------------------------------------------------------------------

    @contextmanager
    def _first_error(self) -> Iterator[None]:
        """What goes wrong inside is kept as the session's first error. A conflict is not: nothing was tried."""
        self._raise_first_error()
        try:
            yield
        except OSError as error:
            if isinstance(error, SessionWriteConflictError):
                raise
            self._latch(error)
            self._raise_first_error()

    def _latch(self, error: OSError) -> None:
        if self._error is None:
            self._error = SessionWriteError(self.path, error)
            self._error.__cause__ = error
            log.error("session %s: %s", self.header["id"], self._error)

    def _raise_first_error(self) -> None:
        if self._refused is not None:
            raise self._refused
        if self._error is not None:
            raise self._error


class _Content:
    """Size and hash of what a file holds: read once, then followed through each append."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._ends_line = True

    def add(self, raw: bytes) -> None:
        if raw:
            self._hash.update(raw)
            self.size += len(raw)
            self._ends_line = raw.endswith(b"\n")

    def end_line(self) -> None:
        if not self._ends_line:
            self.add(b"\n")

    def noting(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self.add(line + b"\n")
            yield line

    def is_of(self, raw: bytes) -> bool:
        return hashlib.sha256(raw).digest() == self._hash.digest()


def new_file_home(
    path: str, folder: str, storage: SessionStorage, blobs: Blobs, header: Entry, entries: Iterable[Any],
    metadata: Metadata, *, title_slot: bytes | None = None, durable: bool,
) -> FileHome:  # fmt: skip
    """A home for a session that no file has yet."""
    metadata.note_header(header, 0)
    kept = list(entries)
    for entry in kept:
        note(metadata, entry)
    session = SessionLines(header, kept, title_slot=title_slot)
    home = FileHome(path, folder, storage, blobs, session, metadata, durable=durable)
    home.undo = home.remove
    return home


def open_file_home(
    path: str, folder: str, storage: SessionStorage, blobs: Blobs, metadata: Metadata, *, durable: bool,
    new_entry_id: NewId | None = None,
) -> FileHome | None:  # fmt: skip
    """The home of the session in a file; None when the file has no valid header first.

    A file of an older version is written again at once, atomically, as version 3; see `read_file_session`.
    """
    raw = encode_text(storage.read_text(path))
    session = read_file_session(raw, path, blobs, metadata, new_entry_id)
    if session is None:
        return None
    home = FileHome(path, folder, storage, blobs, session, metadata, durable=durable)
    home.note_file(raw, keeps_bytes=session.is_utf8)
    if session.was_outdated:
        if metadata.dialect[0] == "omp":
            home.refuse_writes("writing a session of an older version")
        else:
            with suppress(SessionWriteError):  # it can be read all the same; the next write raises it again
                home.rewrite()
    return home


def read_file_session(
    raw: bytes, path: str, blobs: Blobs, metadata: Metadata, new_entry_id: NewId | None = None
) -> SessionLines | None:  # fmt: skip
    """The session in a file's bytes, brought to version 3, images put back; None when it has no valid header first.

    `new_entry_id` makes the ids that migrated entries get; see `read_session_lines`.
    """
    session = read_session_lines(split_lines(io.BytesIO(raw)), metadata, new_entry_id)
    if session.header is None or not session.starts_with_header or metadata.header_id is None:
        return None
    if metadata.dialect[0] == "omp" and session.title_slot is not None:
        slot = parse_title_slot(session.title_slot)
        assert slot is not None
        session.header = header_with_slot(session.header, slot)
    if size_control.needs_restoring(raw):  # pi writes no references, but may have taken over some
        session.entries = [size_control.restored(entry, blobs, path) for entry in session.entries]
    return session


def put_aside(storage: SessionStorage, path: str) -> str:
    """Copy a file's bytes beside it, as `<name>.invalid-<time>`, before it is written over; the copy's path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = f"{path}.invalid-{stamp}"
    number = 1
    while storage.exists(aside):
        number += 1
        aside = f"{path}.invalid-{stamp}-{number}"
    storage.write_text(aside, storage.read_text(path))
    return aside
