"""Takes session files into the database: whole sessions only, each byte of them, many in one transaction.

Files are read and parsed outside the write lock; a batch is then written in one short transaction. A session bigger
than a batch is staged: its rows are hidden from every view until the transaction that completes it.
"""

from __future__ import annotations

import gc
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import apsw
from sessiondb import blobs, rows
from sessiondb.connection import checkpoint, select, select_value, set_journal_mode
from sessiondb.discovery import Found, dialect_from_folder, id_from_name, why_not_regular
from sessiondb.files import CHUNK, Hashed, hash_prefix, holds_an_object_line, open_regular
from sessiondb.jsonl import split_lines
from sessiondb.kinship import link_kin
from sessiondb.lines import FaultRow, Indexer
from sessiondb.metadata import Metadata
from sessiondb.report import LISTED_FAULTS, FileFault, ImportReport, OnProgress, Progress, Skipped
from sessiondb.sources import Source, Sources

if TYPE_CHECKING:
    from hashlib import _Hash

BATCH_BYTES: Final = 16 << 20
"""How much is written in one transaction: well under a second of write lock. More made nothing faster."""

SELECT_ANY_SESSION = "SELECT EXISTS (SELECT 1 FROM session)"

SELECT_BY_DIGEST = """
SELECT pk FROM session
WHERE digest = :digest AND imported_bytes = :size AND staged_by IS NULL
ORDER BY pk LIMIT 1
"""

SELECT_SAME_SIZE = "SELECT EXISTS (SELECT 1 FROM session WHERE imported_bytes = :size AND staged_by IS NULL)"

SELECT_STATE = "SELECT byte_count, imported_bytes, digest FROM session WHERE pk = :pk"

UPDATE_REPLACED = "UPDATE session SET replaced_from = :old WHERE pk = :new"
UPDATE_SUPERSEDED = "UPDATE session SET superseded = :superseded WHERE pk = :pk"


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked of an import."""

    dialect: str | None = None
    session_id: str | None = None
    dry_run: bool = False
    on_progress: OnProgress | None = None


@dataclass(slots=True)
class Pending:
    """A session on its way into the database."""

    path: Path
    status: os.stat_result
    indexer: Indexer
    hasher: _Hash
    old: Source | None = None
    grows: bool = False
    starts_over: bool = False
    is_staged: bool = False
    is_complete: bool = False

    @property
    def size(self) -> int:
        return self.indexer.place.offset


class Importer:
    """One run over found files. Use `run` once."""

    def __init__(self, db: apsw.Connection, database: Path, options: Options) -> None:
        self._db = db
        self._database = database
        self._options = options
        self._sources = Sources(db)
        self._blobs = blobs.BlobStore(db)
        self._report = ImportReport(str(database), dry_run=options.dry_run)
        self._now_ms = int(time.time() * 1000)
        self._keys: Iterator[int] = iter(())
        self._batch: list[Pending] = []
        self._batch_bytes = 0
        self._seen_digests: set[bytes] = set()
        self._namesakes: dict[str, int] = {}

    def run(self, found: Found) -> ImportReport:
        """Look at every found file and take in what is new; returns when all of it is committed."""
        started = time.perf_counter()
        report = self._report
        report.leftovers = [str(p) for p in found.leftovers]
        report.ignored = dict(sorted(found.ignored.items()))
        for path, reason in found.unreadable:
            report.skip(path, reason)
        with self._fast_first_import(), _no_cyclic_garbage():
            try:
                self._take_all(found.files)
                self._flush()
            except BaseException:
                self._give_up()
                raise
        report.warnings = [
            f"{count} different sessions have the id {session_id}; name them by path"
            for session_id, count in self._namesakes.items()
        ]
        report.seconds = time.perf_counter() - started
        return report

    # -- one file ------------------------------------------------------------------------------------------------

    def _take_all(self, files: list[Path]) -> None:
        known = self._sources.by_path()
        lacking = self._blobs.sessions_missing_some()
        waiting: list[tuple[Path, os.stat_result]] = []
        for path in files:
            self._report.files += 1
            try:
                status = path.stat()
            except OSError as error:
                self._report.skip(path, self._no_file(path, error))
                continue
            source = known.get(path)
            if source is not None and source.matches(status):
                self._held_already(source, lacking)
            else:
                waiting.append((path, status))
        total = sum(status.st_size for _, status in waiting)
        done = 0
        for count, (path, status) in enumerate(waiting):
            self._tell(len(files) - len(waiting) + count, len(files), done, total)
            self._take(path, known.get(path))
            done += status.st_size
        self._tell(len(files), len(files), total, total)

    def _tell(self, files: int, files_total: int, done: int, total: int) -> None:
        if self._options.on_progress:
            self._options.on_progress(Progress(files, files_total, done, total))

    def _no_file(self, path: Path, error: OSError) -> str:
        if path.is_symlink() and isinstance(error, FileNotFoundError):
            return "a link to nothing"
        return (error.strerror or str(error)).lower()

    def _held_already(self, source: Source, lacking: set[int]) -> None:
        self._report.unchanged += 1
        if self._options.dry_run:
            return
        if source.gone_ms is not None:
            self._sources.put(source.path, source.session_pk, source.size, source.path.stat(), self._now_ms)
        if source.session_pk in lacking:
            self._take_blobs(source.path, source.session_pk)

    def _take(self, path: Path, old: Source | None) -> None:
        if self._is_the_database(path):
            self._report.skip(path, "the database itself")
            return
        try:
            with open_regular(path) as stream:
                self._read(path, stream, old)
        except OSError as error:
            self._drop_incomplete()
            self._report.skip(path, (error.strerror or str(error)).lower())

    def _is_the_database(self, path: Path) -> bool:
        # Opening and closing it here would drop the locks of every connection of this process.
        names = {self._database.name + suffix for suffix in ("", "-wal", "-shm", "-journal")}
        return path.name in names and path.resolve().parent == self._database.resolve().parent

    def _read(self, path: Path, stream: BinaryIO, old: Source | None) -> None:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._report.skip(path, why_not_regular(status.st_mode))
            return
        held = None if old is None else self._digest_of(old)
        if old is None or held is None:
            old = None  # a new path, or one that its session went on without
        else:
            hasher = hash_prefix(stream, old.size)
            if hasher is not None and hasher.digest() == held:
                self._take_growth(path, stream, status, old, hasher)
                return
            stream.seek(0)
        if not holds_an_object_line(stream):
            self._report.skip(path, "empty" if status.st_size == 0 else "no line starts with {: not a session file")
            return
        if status.st_size > BATCH_BYTES and self._is_held_by_digest(path, stream, status, old):
            return
        indexer = self._new_indexer(path)
        self._feed(Pending(path, status, indexer, hashlib.sha256(), old), stream)

    def _digest_of(self, source: Source) -> bytes | None:
        """The digest of the source's bytes as they were taken in; None when the session went on without it."""
        state = next(select(self._db, SELECT_STATE, {"pk": source.session_pk}), None)
        return state[2] if state is not None and state[1] == source.size else None

    def _take_growth(self, path: Path, stream: BinaryIO, status: os.stat_result, old: Source, hasher: _Hash) -> None:
        if status.st_size <= old.size:
            self._report.unchanged += 1
            self._note_source(path, old.session_pk, old.size, status)
            return
        if self._sources.others_holding(old):
            # Its twin stays as it was: from here on they are two sessions, one the continuation of the other.
            stream.seek(0)
            self._feed(Pending(path, status, self._new_indexer(path), hashlib.sha256()), stream)
            return
        stream.seek(old.size - 1)
        pending = Pending(path, status, rows.resume(self._db, old.session_pk), hasher, old, grows=True)
        if stream.read(1) != b"\n":
            # The last line held so far went on; it and what was known from it are read anew.
            pending.indexer, pending.hasher, pending.starts_over = (
                rows.restart(self._db, old.session_pk), hashlib.sha256(), True,
            )  # fmt: skip
            stream.seek(0)
        self._feed(pending, stream)

    def _new_indexer(self, path: Path) -> Indexer:
        hint = self._options.session_id or id_from_name(path)
        metadata = Metadata(hint, self._options.dialect, dialect_from_folder(path))
        return Indexer(self._next_key(), metadata, max_line=rows.longest_line(self._db))

    def _next_key(self) -> int:
        if self._options.dry_run:
            return 0
        key = next(self._keys, None)
        if key is None:
            self._keys = rows.reserve_session_keys(self._db)
            key = next(self._keys)
        return key

    def _is_held_by_digest(self, path: Path, stream: BinaryIO, status: os.stat_result, old: Source | None) -> bool:
        """Whether a big file's bytes are held already: found by hashing alone, so that it need not be staged first."""
        if not select_value(self._db, SELECT_SAME_SIZE, {"size": status.st_size}):
            return False
        hasher = hash_prefix(stream, status.st_size)
        stream.seek(0)
        digest = hasher.digest() if hasher else None
        held = select_value(self._db, SELECT_BY_DIGEST, {"digest": digest, "size": status.st_size})
        if held is None:
            return False
        self._join(path, held, status.st_size, status, old)
        return True

    def _feed(self, pending: Pending, stream: BinaryIO) -> None:
        """Read the rest of the stream into the pending session; the batch is flushed whenever it is full."""
        add = pending.indexer.add
        self._batch.append(pending)
        waiting = self._batch_bytes
        for line in split_lines(Hashed(stream, pending.hasher), chunk_size=CHUNK):
            add(line)
            waiting += len(line)
            if waiting >= BATCH_BYTES:
                self._flush()
                waiting = 0
        self._batch_bytes = waiting
        self._report.bytes_read += pending.size
        self._settle(pending, os.fstat(stream.fileno()))

    def _settle(self, pending: Pending, after: os.stat_result) -> None:
        """The file is read to its end: was it one file throughout, and is it new?"""
        if after.st_size < pending.size or (
            after.st_size == pending.size and after.st_mtime_ns != pending.status.st_mtime_ns
        ):
            self._drop_incomplete()
            self._report.skip(pending.path, "changed while it was read; import it again")
            return
        digest = pending.hasher.digest()
        if digest in self._seen_digests and not self._options.dry_run:
            self._batch.remove(pending)  # its twin is in the batch: write that first
            self._flush()
            self._batch.append(pending)
        held = select_value(self._db, SELECT_BY_DIGEST, {"digest": digest, "size": pending.size})
        if held is not None or (self._options.dry_run and digest in self._seen_digests):
            self._drop_incomplete()
            self._join(pending.path, held, pending.size, pending.status, pending.old)
            return
        self._seen_digests.add(digest)
        pending.is_complete = True
        if self._batch_bytes >= BATCH_BYTES:
            self._flush()

    def _join(self, path: Path, held: int | None, size: int, status: os.stat_result, old: Source | None) -> None:
        """The bytes are a session already: it answers to this path too."""
        self._report.unchanged += 1
        self._report.known_elsewhere += 1
        if held is None:
            return
        if not self._options.dry_run and old is not None and old.session_pk != held:
            with self._transaction(commit=not self._db.in_transaction):
                self._supersede_left(old)
                self._db.execute(UPDATE_SUPERSEDED, {"pk": held, "superseded": 0})
        self._note_source(path, held, size, status)

    def _note_source(self, path: Path, session_pk: int, size: int, status: os.stat_result) -> None:
        if not self._options.dry_run:
            self._sources.put(path, session_pk, size, status, self._now_ms)

    # -- the batch -----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write the finished sessions of the batch in one transaction, then what there is of the one being read."""
        finished = [p for p in self._batch if p.is_complete]
        unfinished = [p for p in self._batch if not p.is_complete]
        self._batch, self._batch_bytes = unfinished, 0
        if self._options.dry_run:
            self._count_dry([*finished, *unfinished])
            return
        if finished:
            with self._transaction(commit=True):
                for pending in finished:
                    self._write(pending)
            checkpoint(self._db)
        for pending in unfinished:
            # Staged rows are hidden; a session that grows is visible, so its transaction stays open to the end.
            with self._transaction(commit=not pending.grows):
                self._write(pending)

    def _count_dry(self, batch: list[Pending]) -> None:
        for pending in batch:
            self._count_faults(pending, pending.indexer.take_rows().faults)
            if pending.is_complete:
                missing = [d for d in sorted(pending.indexer.blobs) if self._blobs.get(d) is None]
                sum(1 for _ in self._read_blobs(pending.path, missing))
                self._count(pending)

    def _write(self, pending: Pending) -> None:
        indexer = pending.indexer
        if pending.old is not None and pending.grows and not pending.is_staged:
            if not self._is_as_it_was(pending):
                self._report.skip(pending.path, "another process took its new lines in at the same time")
                pending.is_complete = True
                indexer.take_rows()
                return
            if pending.starts_over:
                rows.clear_derived(self._db, indexer.session_pk)
        elif not pending.is_staged:
            rows.stage_session(self._db, indexer, self._now_ms)
        pending.is_staged = True
        derived = indexer.take_rows()
        self._count_faults(pending, derived.faults)
        rows.write_rows(self._db, derived)
        if pending.is_complete:
            self._finish(pending)

    def _is_as_it_was(self, pending: Pending) -> bool:
        """Whether the stored session is still the one that this growth was read against."""
        assert pending.old is not None
        state = next(select(self._db, SELECT_STATE, {"pk": pending.old.session_pk}), None)
        return state is not None and state[1] == pending.old.size

    def _finish(self, pending: Pending) -> None:
        indexer, digest = pending.indexer, pending.hasher.digest()
        pk, size = indexer.session_pk, pending.size
        if not pending.grows:
            # Another process may have committed the same bytes since they were read here.
            held = select_value(self._db, SELECT_BY_DIGEST, {"digest": digest, "size": size})
            if held is not None:
                rows.delete_session(self._db, pk)
                self._join(pending.path, held, size, pending.status, pending.old)
                return
        faults = rows.finish_session(self._db, indexer, digest=digest, imported_bytes=size, now_ms=self._now_ms)
        self._count_faults(pending, faults)
        self._note_source(pending.path, pk, size, pending.status)
        if pending.old is not None and not pending.grows:
            self._supersede_left(pending.old)
            self._db.execute(UPDATE_REPLACED, {"old": pending.old.session_pk, "new": pk})
        self._note_kin(indexer.metadata.session_id, link_kin(self._db, pk))
        if indexer.blobs:
            self._take_blobs(pending.path, pk)
        self._count(pending)

    def _note_kin(self, session_id: str, strangers: int) -> None:
        if strangers:
            self._namesakes[session_id] = strangers + 1

    def _supersede_left(self, old: Source) -> None:
        """A path no longer holds its old session: unless another path does, that one is superseded."""
        if not self._sources.others_holding(old):
            self._db.execute(UPDATE_SUPERSEDED, {"pk": old.session_pk, "superseded": 1})

    def _take_blobs(self, path: Path, session_pk: int) -> None:
        for content in self._read_blobs(path, self._blobs.missing(session_pk)):
            self._blobs.put(content)

    def _read_blobs(self, path: Path, digests: list[str]) -> Iterator[bytes]:
        """The bytes of those that are found, each counted; the others are listed."""
        for blob in blobs.read_beside(path, digests):
            if blob.content is None:
                self._report.missing_blobs.append(Skipped(str(path), f"blob {blob.digest}: {blob.problem}"))
            else:
                self._report.blobs += 1
                yield blob.content

    def _count(self, pending: Pending) -> None:
        if pending.grows:
            self._report.updated += 1
            return
        self._report.imported += 1
        self._report.replaced += pending.old is not None

    def _count_faults(self, pending: Pending, faults: list[FaultRow]) -> None:
        report = self._report
        report.fault_count += len(faults)
        room = LISTED_FAULTS - len(report.faults)
        report.faults += [FileFault(str(pending.path), *fault[1:]) for fault in faults[:room]]

    # -- when something fails ------------------------------------------------------------------------------------

    def _drop_incomplete(self) -> None:
        """Forget the session that is being read, also what was staged of it."""
        dropped = [p for p in self._batch if not p.is_complete]
        self._batch = [p for p in self._batch if p.is_complete]
        for pending in dropped:
            if pending.grows:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            elif pending.is_staged:
                with self._transaction():
                    rows.delete_session(self._db, pending.indexer.session_pk)

    def _give_up(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._batch = [p for p in self._batch if not p.is_complete]
        with suppress(apsw.Error):  # the next start removes what is staged; the first error is the one to tell
            self._drop_incomplete()

    @contextmanager
    def _transaction(self, *, commit: bool = True) -> Iterator[None]:
        """Begin unless one is open; whoever fails inside, `run` rolls back."""
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
        yield
        if commit:
            self._db.execute("COMMIT")

    @contextmanager
    def _fast_first_import(self) -> Iterator[None]:
        """Into an empty database: a rollback journal that is truncated writes each page once, a log writes it twice."""
        db = self._db
        if self._options.dry_run or select_value(db, SELECT_ANY_SESSION):
            yield
            return
        if set_journal_mode(db, "truncate") == "truncate":
            db.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            db.execute("PRAGMA synchronous = NORMAL")
            set_journal_mode(db, "wal", timeout=10.0)


@contextmanager
def _no_cyclic_garbage() -> Iterator[None]:
    """Parsing makes no cycles, and looking for them costs a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
