"""Takes session files into the database: whole sessions only, each byte of them, many in one transaction.

Files are read and parsed outside the write lock, and written in short transactions by a Batch.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import apsw

from sessiondb import batch, rows
from sessiondb.batch import Batch, Pending
from sessiondb.blobs import BlobStore
from sessiondb.connection import select_value, set_journal_mode
from sessiondb.discovery import Found, agent_folder, id_from_name
from sessiondb.files import CHUNK, Hashed, hash_prefix, holds_an_object_line, open_regular
from sessiondb.garbage import no_cyclic_garbage
from sessiondb.jsonl import split_lines
from sessiondb.lines import Indexer
from sessiondb.metadata import Dialect, Metadata
from sessiondb.report import ImportReport, OnProgress, Progress
from sessiondb.sources import Source, Sources

if TYPE_CHECKING:
    from hashlib import _Hash

SELECT_ANY_SESSION = "SELECT EXISTS (SELECT 1 FROM session)"

SELECT_SAME_SIZE = "SELECT EXISTS (SELECT 1 FROM session WHERE imported_bytes = :size AND staged_by IS NULL)"


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked of an import."""

    dialect: Dialect | None = None
    session_id: str | None = None
    dry_run: bool = False
    on_progress: OnProgress | None = None


def import_found(db: apsw.Connection, database: Path, found: Found, options: Options) -> ImportReport:
    """Look at every found file and take in what is new; when it returns, all of it is committed."""
    started, now_ms = time.perf_counter(), int(time.time() * 1000)
    report = ImportReport(str(database), dry_run=options.dry_run)
    report.leftovers = [str(path) for path in found.leftovers]
    report.ignored = dict(sorted(found.ignored.items()))
    for path, reason in found.unreadable:
        report.skip(path, reason)
    with (
        _fast_into_an_empty_database(db, dry_run=options.dry_run),
        no_cyclic_garbage(),
        Batch(db, report, now_ms, dry_run=options.dry_run) as sessions,
    ):
        _Reader(database, sessions, report, options).read_all(found.files)
    report.seconds = time.perf_counter() - started
    return report


class _Reader:
    """Decides for each file what it is to the database, and reads what is new of it into the batch."""

    def __init__(self, database: Path, sessions: Batch, report: ImportReport, options: Options) -> None:
        self._database = database
        self._batch = sessions
        self._report = report
        self._options = options
        self._longest_line = rows.longest_line(sessions.db)
        self._keys: Iterator[int] = iter(())
        self._waiting = 0  # bytes read since the last flush
        self._progress = Progress(0, 0, 0, 0)

    def read_all(self, files: list[Path]) -> None:
        """Files that look untouched cost a stat; the others are read."""
        known = Sources(self._batch.db).by_path()
        lacking = BlobStore(self._batch.db).sessions_missing_some()
        to_read: list[tuple[Path, os.stat_result]] = []
        for path in files:
            self._report.files += 1
            try:
                status = path.stat()
            except OSError as error:
                self._report.skip(path, _why_missing(path, error))
                continue
            source = known.get(path)
            if source is not None and source.is_in_step and source.matches(status):
                self._pass_over(source, status, lacking)
            else:
                to_read.append((path, status))
        total, done = sum(status.st_size for _, status in to_read), 0
        for count, (path, status) in enumerate(to_read):
            self._tell(Progress(len(files) - len(to_read) + count, len(files), done, total))
            self._read(path, known.get(path))
            done += status.st_size
        self._tell(Progress(len(files), len(files), total, total))

    def _tell(self, progress: Progress, inside: int = 0) -> None:
        """Say how far the import is; `inside` is how much of the file at hand is read."""
        self._progress = progress
        if self._options.on_progress:
            self._options.on_progress(replace(progress, bytes=progress.bytes + inside))

    def _pass_over(self, source: Source, status: os.stat_result, lacking: set[int]) -> None:
        if self._options.dialect and self._batch.set_dialect(source.session_pk, self._options.dialect):
            self._report.updated += 1
        else:
            self._report.unchanged += 1
        if source.gone_ms is not None:
            self._batch.note_source(source.path, source.session_pk, source.size, status)
        if source.session_pk in lacking and not self._options.dry_run:
            self._batch.take_blobs(source.path, source.session_pk)

    def _read(self, path: Path, old: Source | None) -> None:
        if self._is_the_database(path):
            self._report.skip(path, "the database itself")
            return
        try:
            with open_regular(path) as stream:
                self._read_open(path, stream, old)
        except OSError as error:
            self._batch.forget()
            self._report.skip(path, _reason(error))

    def _is_the_database(self, path: Path) -> bool:
        # Opening and closing it here would drop the locks of every connection of this process.
        real = self._database.resolve()
        own = (real.with_name(real.name + suffix) for suffix in ("", "-wal", "-shm", "-journal"))
        identity = _identity(path)
        return identity is not None and any(_identity(file) == identity for file in own)

    def _read_open(self, path: Path, stream: BinaryIO, old: Source | None) -> None:
        status = os.fstat(stream.fileno())
        held = None if old is None else self._batch.digest_of(old)
        if old is None or held is None:
            old = None  # a new path, or one that its session went on without
        else:
            hasher = hash_prefix(stream, old.size)
            if hasher is not None and hasher.digest() == held:
                self._read_growth(path, stream, status, old, hasher)
                return
            stream.seek(0)
        if not holds_an_object_line(stream):
            self._report.skip(path, "empty" if status.st_size == 0 else "no line starts with {: not a session file")
        elif not self._joins_by_digest(path, stream, status, old):
            self._feed(Pending(path, status, self._new_indexer(path), hashlib.sha256(), old), stream)

    def _joins_by_digest(self, path: Path, stream: BinaryIO, status: os.stat_result, old: Source | None) -> bool:
        """Whether a big file's bytes are held already: found by hashing alone, so that it need not be staged first."""
        if status.st_size <= batch.BATCH_BYTES:
            return False
        if not select_value(self._batch.db, SELECT_SAME_SIZE, {"size": status.st_size}):
            return False
        hasher = hash_prefix(stream, status.st_size)
        stream.seek(0)
        held = self._batch.held(hasher.digest(), status.st_size) if hasher else None
        if held is None:
            return False
        self._batch.join(path, held, status.st_size, status, old)
        return True

    def _read_growth(
        self, path: Path, stream: BinaryIO, status: os.stat_result, old: Source, hasher: _Hash
    ) -> None:  # fmt: skip
        """The file begins with what is held of it."""
        if status.st_size <= old.size:
            self._report.unchanged += 1
            self._batch.note_source(path, old.session_pk, old.size, status)
            return
        db = self._batch.db
        if Sources(db).others_holding(old):
            # Its twin stays as it was: from here on they are two sessions, one the continuation of the other.
            stream.seek(0)
            self._feed(Pending(path, status, self._new_indexer(path), hashlib.sha256()), stream)
            return
        stream.seek(old.size - 1)
        if stream.read(1) == b"\n":
            self._feed(Pending(path, status, rows.resume(db, old.session_pk), hasher, old, grows=True), stream)
        else:
            # The last line held so far went on: it, and what was known from it, are read anew. The held lines give
            # way to what is read, so its beginning must still be what is held.
            pending = Pending(path, status, rows.restart(db, old.session_pk), hashlib.sha256(), old, grows=True)
            pending.starts_over, pending.digest_before = True, hasher.digest()
            stream.seek(0)
            self._feed(pending, stream)

    def _new_indexer(self, path: Path) -> Indexer:
        hint = self._options.session_id or id_from_name(path)
        metadata = Metadata(hint, self._options.dialect, agent_folder(path))
        return Indexer(self._next_key(), metadata, max_line=self._longest_line)

    def _next_key(self) -> int:
        if self._options.dry_run:
            return 0
        key = next(self._keys, None)
        if key is None:
            self._keys = rows.reserve_session_keys(self._batch.db)
            key = next(self._keys)
        return key

    def _feed(self, pending: Pending, stream: BinaryIO) -> None:
        """Read the rest of the stream into the pending session; the batch is flushed whenever it is full."""
        self._batch.begin(pending)
        add, waiting = pending.indexer.add, self._waiting
        mark = pending.old.size if pending.old and pending.starts_over else 0
        snapshot = Hashed(stream, pending.hasher, pending.status.st_size - stream.tell(), mark=mark)
        for line in split_lines(snapshot, chunk_size=CHUNK):
            add(line)
            waiting += len(line)
            if waiting >= batch.BATCH_BYTES:
                self._batch.flush()
                waiting = 0
                self._tell(self._progress, pending.size)
        self._waiting = waiting
        self._report.bytes_read += pending.size
        if self._is_what_was_read(pending, stream) and snapshot.digest_at_mark == pending.digest_before:
            self._batch.finish(pending)
        else:
            self._batch.forget()
            self._report.skip(pending.path, "changed while it was read; import it again")

    def _is_what_was_read(self, pending: Pending, stream: BinaryIO) -> bool:
        """Whether the file still begins with the bytes that were read: agents append to files that are being read."""
        before, after = pending.status, os.fstat(stream.fileno())
        if pending.size != before.st_size:
            return False
        if (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
            return True
        stream.seek(0)
        again = hash_prefix(stream, before.st_size)
        return again is not None and again.digest() == pending.hasher.digest()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _why_missing(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return "a link to nothing"
    return _reason(error)


def _reason(error: OSError) -> str:
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


@contextmanager
def _fast_into_an_empty_database(db: apsw.Connection, *, dry_run: bool) -> Iterator[None]:
    """A rollback journal that is truncated writes each page once, a write-ahead log twice. Others may still come in."""
    if dry_run or select_value(db, SELECT_ANY_SESSION):
        yield
        return
    if set_journal_mode(db, "truncate") == "truncate":
        db.execute("PRAGMA synchronous = FULL")
    try:
        yield
    finally:
        if not db.in_transaction:  # else something failed badly: that is the error to tell
            db.execute("PRAGMA synchronous = NORMAL")
            set_journal_mode(db, "wal", timeout=10.0)
