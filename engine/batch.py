"""Writes sessions that were read into the database, many in one transaction, each whole.

A batch holds finished sessions and the one that is being read. Flushing writes the finished ones in one transaction;
what there is of the unfinished one is staged: its rows are hidden from every view until the transaction that completes
it. The text index and the commit itself, mostly SQLite's work and the disk's, are seen to while the next files are
read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from sessiondb import blobs, live_rows, rows
from sessiondb.connection import checkpoint, select, select_value
from sessiondb.kinship import link_kin
from sessiondb.lineage import link_lineage
from sessiondb.lines import FaultRow, Indexer
from sessiondb.metadata import Dialect
from sessiondb.report import LISTED_FAULTS, FileFault, ImportReport, Skipped
from sessiondb.sources import Source, Sources
from sessiondb.text_index import TextRow, write_texts

if TYPE_CHECKING:
    from hashlib import _Hash

BATCH_BYTES: Final = 32 << 20
"""How much is written in one transaction: under a second of write lock. Less waits more often for the disk."""

SWITCH_SECONDS: Final = 0.0005
"""How long Python lets a thread wait while another runs. With its own 5 ms, the thread that writes texts, mostly inside
of SQLite, would wait so long at each statement for the one that reads."""

SELECT_BY_DIGEST = """
SELECT pk FROM session
WHERE digest = :digest AND imported_bytes = :size AND staged_by IS NULL
ORDER BY pk LIMIT 1
"""

SELECT_STATE = """
SELECT imported_bytes, digest, byte_count > imported_bytes OR original_slots IS NOT NULL FROM session WHERE pk = :pk
"""

SELECT_LIVE = """
SELECT pk, byte_count FROM session
WHERE imported_bytes = 0 AND original_slots IS NULL AND staged_by IS NULL
ORDER BY pk
"""

UPDATE_IMPORTED = "UPDATE session SET digest = :digest, imported_bytes = :size WHERE pk = :pk AND byte_count = :size"

UPDATE_REPLACED = "UPDATE session SET replaced_from = :old WHERE pk = :new"
UPDATE_SUPERSEDED = "UPDATE session SET superseded = :superseded WHERE pk = :pk"


@dataclass(slots=True)
class Pending:
    """A session on its way into the database.

    `old` is what its path held before, `grows` that it goes on with that; `starts_over` that all of it is read again,
    and must begin with bytes of the digest `digest_before`.
    """

    path: Path
    status: os.stat_result
    indexer: Indexer
    hasher: _Hash
    old: Source | None = None
    grows: bool = False
    starts_over: bool = False
    digest_before: bytes = b""
    is_staged: bool = False
    is_complete: bool = False

    @property
    def size(self) -> int:
        return self.indexer.place.offset


class Batch:
    """The sessions read since the last flush. Use it in a `with` block: a block that raises leaves nothing half done.

    With `dry_run` nothing is written; everything is counted as if it were.
    """

    def __init__(self, db: apsw.Connection, report: ImportReport, now_ms: int, *, dry_run: bool) -> None:
        self._connection = db
        self._report = report
        self._now_ms = now_ms
        self._dry_run = dry_run
        self._pending: list[Pending] = []
        self._dry_digests: set[bytes] = set()
        self._namesakes: dict[str, int] = {}
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._switch_interval = sys.getswitchinterval()
        self._commit: Future[None] | None = None
        self._is_writing = False
        self._texts: list[TextRow] = []  # of the transaction at hand
        self._live: dict[int, list[int]] | None = None  # sessions that never were in a file, by their bytes

    def __enter__(self) -> Batch:
        sys.setswitchinterval(SWITCH_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
                self._wait()
                self._report.warnings += self._warnings()
            else:
                self._give_up()
        except BaseException:
            self._give_up()
            raise
        finally:
            self._beside.shutdown()
            sys.setswitchinterval(self._switch_interval)

    @property
    def db(self) -> apsw.Connection:
        """The connection, once the last commit is through; raises what that raised."""
        self._wait()
        return self._connection

    def _wait(self) -> None:
        commit, self._commit = self._commit, None
        if commit is not None:
            commit.result()

    # -- what comes in -------------------------------------------------------------------------------------------

    def begin(self, pending: Pending) -> None:
        """Take a session whose lines are being read."""
        self._pending.append(pending)

    def finish(self, pending: Pending) -> None:
        """The session that was begun last is read to its end."""
        if pending.grows and not self._dry_run:
            digest = pending.hasher.digest()
            if any(p.is_complete and p.hasher.digest() == digest for p in self._pending):
                self._flush_finished()
            held = self.held(digest, pending.size)
            if held is not None:
                self.forget()
                self.join(pending.path, held, pending.size, pending.status, pending.old)
                return
        pending.is_complete = True
        if pending.grows and pending.is_staged:
            self._flush_finished()  # its transaction is open, and nothing else may be part of it

    def forget(self) -> None:
        """Drop the session that is being read, also what was staged of it."""
        dropped = [p for p in self._pending if not p.is_complete]
        self._pending = [p for p in self._pending if p.is_complete]
        for pending in dropped:
            if pending.is_staged and pending.grows:
                self.db.execute("ROLLBACK")
            elif pending.is_staged:
                with self._transaction():
                    rows.delete_session(self.db, pending.indexer.session_pk)

    def held(self, digest: bytes, size: int) -> int | None:
        """The session that has exactly these bytes."""
        found: int | None = select_value(self.db, SELECT_BY_DIGEST, {"digest": digest, "size": size})
        return self._live_with(digest, size) if found is None else found

    def _live_with(self, digest: bytes, size: int) -> int | None:
        """A session that was written here, never in a file, and has these bytes; from now on they are from one."""
        if self._live is None:
            self._live = {}
            for pk, byte_count in select(self.db, SELECT_LIVE):
                self._live.setdefault(byte_count, []).append(pk)
        for pk in self._live.get(size, ()):
            if rows.digest_of(rows.read_slots(self.db, pk)) == digest:
                if not self._dry_run:
                    self.db.execute(UPDATE_IMPORTED, {"pk": pk, "digest": digest, "size": size})
                return pk
        return None

    def digest_of(self, source: Source) -> bytes | None:
        """The digest of what the path held; None when its session went on without it, with a twin or in the database.

        What the batch holds of that session, or of a file with its bytes, is written first: it may be the reason.
        """
        size, digest, _ = self._state(source.session_pk)
        finished = [p for p in self._pending if p.is_complete]
        if any(p.indexer.session_pk == source.session_pk or p.hasher.digest() == digest for p in finished):
            self._flush_finished()
        size, digest, went_on = self._state(source.session_pk)
        return digest if size == source.size and not went_on else None

    def _state(self, session_pk: int) -> tuple[int | None, bytes | None, bool]:
        """How many bytes of the session came from a file, their digest, and whether it went on in the database."""
        return next(select(self.db, SELECT_STATE, {"pk": session_pk}), (None, None, False))

    def join(self, path: Path, held: int | None, size: int, status: os.stat_result, old: Source | None) -> None:
        """The path's bytes are a session already: it answers to this path too."""
        self._report.unchanged += 1
        self._report.known_elsewhere += 1
        if self._dry_run or held is None:
            return
        with self._transaction():
            self.note_source(path, held, size, status)
            if old is not None and old.session_pk != held:
                self._supersede(old)

    def set_dialect(self, session_pk: int, dialect: Dialect) -> bool:
        """Give a stored session the dialect that was asked for now; False when it has it, or nothing is written."""
        if self._dry_run:
            return False
        with self._transaction():
            return live_rows.set_dialect(self.db, session_pk, dialect)

    def note_source(self, path: Path, session_pk: int, size: int, status: os.stat_result) -> None:
        """The path's first `size` bytes are the session's, which is therefore not superseded, or no longer."""
        if not self._dry_run:
            Sources(self.db).put(path, session_pk, size, status, self._now_ms)
            self._set_superseded(session_pk, superseded=False)

    # -- what is written -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the finished sessions, and what there is of the one being read, in one transaction."""
        if self._dry_run or self._pending[-1:] == [] or self._pending[-1].grows:
            self._flush_finished()
            self._flush_unfinished()
        else:
            with self._transaction():  # one commit, which is not waited for
                self._flush_finished()
                self._flush_unfinished()

    def _flush_unfinished(self) -> None:
        for pending in self._pending:
            if self._dry_run:
                self._count_faults(pending, pending.indexer.take_rows().faults)
                continue
            # Staged rows are hidden; a session that grows is visible, so its transaction stays open to the end.
            with self._transaction(keep_open=pending.grows):
                self._write(pending)

    def _flush_finished(self) -> None:
        finished = [p for p in self._pending if p.is_complete]
        self._pending = [p for p in self._pending if not p.is_complete]
        if self._dry_run:
            for pending in finished:
                self._count_dry(pending)
        elif finished:
            with self._transaction():
                for pending in finished:
                    self._write(pending)

    def _write(self, pending: Pending) -> None:
        indexer = pending.indexer
        if pending.is_complete and not pending.grows:
            # Taken in before under another path, in this very batch, or by another process since it was read here.
            held = self.held(pending.hasher.digest(), pending.size)
            if held is not None:
                if pending.is_staged:
                    rows.delete_session(self.db, indexer.session_pk)
                self.join(pending.path, held, pending.size, pending.status, pending.old)
                return
        if not pending.is_staged and not self._make_room(pending):
            return
        pending.is_staged = True
        derived = indexer.take_rows()
        self._count_faults(pending, derived.faults)
        self._texts += derived.take_texts()
        rows.write_rows(self.db, derived)
        if pending.is_complete:
            self._complete(pending)

    def _make_room(self, pending: Pending) -> bool:
        """Prepare the session's rows; False when a growth was read against a session that is no longer like that."""
        if not pending.grows:
            rows.stage_session(self.db, pending.indexer, self._now_ms)
            return True
        assert pending.old is not None
        if self.digest_of(pending.old) is None:
            self._report.skip(pending.path, "its session went on in the meantime; import it again")
            return False
        if pending.starts_over:
            rows.clear_derived(self.db, pending.indexer.session_pk)
        return True

    def _complete(self, pending: Pending) -> None:
        indexer, digest = pending.indexer, pending.hasher.digest()
        pk = indexer.session_pk
        faults = rows.finish_session(
            self.db, indexer, digest=digest, imported_bytes=pending.size, now_ms=self._now_ms
        )  # fmt: skip
        self._count_faults(pending, faults)
        self.note_source(pending.path, pk, pending.size, pending.status)
        if pending.old is not None and not pending.grows:
            self._supersede(pending.old)
            self.db.execute(UPDATE_REPLACED, {"old": pending.old.session_pk, "new": pk})
        if strangers := link_kin(self.db, pk):
            self._namesakes[indexer.metadata.session_id] = strangers + 1
        if indexer.blobs:
            self.take_blobs(pending.path, pk)
        self._count(pending)

    def _supersede(self, old: Source) -> None:
        """A path no longer holds its old session: unless another path does, that one is superseded."""
        if not Sources(self.db).others_holding(old):
            self._set_superseded(old.session_pk, superseded=True)

    def _set_superseded(self, session_pk: int, *, superseded: bool) -> None:
        self.db.execute(UPDATE_SUPERSEDED, {"pk": session_pk, "superseded": int(superseded)})
        link_lineage(self.db, session_pk)

    def take_blobs(self, path: Path, session_pk: int) -> None:
        """Take in the blobs beside the file that the session refers to and the database lacks."""
        store = blobs.BlobStore(self.db)
        for content in self._read_blobs(path, store.missing(session_pk)):
            store.put(content)

    def _read_blobs(self, path: Path, digests: list[str]) -> Iterator[bytes]:
        """The bytes of those that are found, each counted; the others are listed."""
        for blob in blobs.read_beside(path, digests, longest=rows.longest_line(self.db)):
            if blob.content is None:
                self._report.missing_blobs.append(Skipped(str(path), f"blob {blob.digest}: {blob.problem}"))
            else:
                self._report.blobs += 1
                yield blob.content

    # -- what is counted -----------------------------------------------------------------------------------------

    def _count_dry(self, pending: Pending) -> None:
        digest = pending.hasher.digest()
        held = self.held(digest, pending.size)
        if held is not None or digest in self._dry_digests:
            self.join(pending.path, held, pending.size, pending.status, pending.old)
            return
        self._dry_digests.add(digest)
        self._count_faults(pending, pending.indexer.take_rows().faults)
        store = blobs.BlobStore(self.db)
        missing = [d for d in sorted(pending.indexer.blobs) if store.get(d) is None]
        sum(1 for _ in self._read_blobs(pending.path, missing))
        self._count(pending)

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

    def _warnings(self) -> list[str]:
        return [
            f"{count} different sessions have the id {session_id}; name them by path"
            for session_id, count in self._namesakes.items()
        ]

    # -- transactions --------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, *, keep_open: bool = False) -> Iterator[None]:
        """One transaction, committed beside what comes next; inside another, a part of that.

        A block that raises leaves it open: `_give_up` rolls it back.
        """
        if self._is_writing:
            yield
            return
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")
        self._is_writing = True
        try:
            yield
        finally:
            self._is_writing = False
        texts, self._texts = self._texts, []
        if keep_open:
            write_texts(self._connection, texts)
        else:
            self._commit = self._beside.submit(_commit, self._connection, texts)

    def _give_up(self) -> None:
        """Leave no transaction open. The error that led here is the one to tell."""
        with suppress(Exception):
            self._wait()
        with suppress(apsw.Error):  # the next start removes what is staged
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._pending = [p for p in self._pending if not p.is_complete and not p.grows]
            self.forget()


def _commit(db: apsw.Connection, texts: list[TextRow]) -> None:
    write_texts(db, texts)
    db.execute("COMMIT")
    checkpoint(db)
