"""Moving the write-ahead log into the database beside the appends that fill it.

SQLite would do it inside of every thousandth page's commit: 15 to 40 ms for one append, a third of the time of all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

import apsw

from sessiondb.connection import PAGE_SIZE, checkpoint

STEP_PAGES: Final = 4 * 1024 * 1024 // PAGE_SIZE
"""How many pages of the log wait before a checkpoint begins."""

BOUND_PAGES: Final = 48 * 1024 * 1024 // PAGE_SIZE
"""How many pages the log may have before a writer moves them itself. It begins anew when all of them were moved, which
the thread never sees to while appends follow each other closely."""

IDLE_SECONDS: Final = 1.0
"""The thread ends when it had nothing to do for so long, so a store that nobody closes leaves none behind."""


class Checkpoints:
    """The checkpoints of one store: a thread with a connection of its own, there while there are appends.

    A checkpoint that fails loses nothing: the pages stay in the log, and the next one has them too.
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._due = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_due = self._is_closed = False
        self._moved_pages = 0

    def watch(self, db: apsw.Connection) -> None:
        """Let the commits of a connection lead to checkpoints here instead of making them themselves."""
        db.set_wal_hook(self._note_commit)

    def close(self) -> None:
        """Wait for a checkpoint that runs; there are no more."""
        with self._lock:
            self._is_closed = True
            self._due.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _note_commit(self, db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._moved_pages:  # the log began anew
            self._moved_pages = 0
        if pages >= BOUND_PAGES:
            with suppress(apsw.Error):
                checkpoint(db)
        elif pages - self._moved_pages >= STEP_PAGES and not self._is_due:
            self._wake()
        return apsw.SQLITE_OK

    def _wake(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_due = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sessiondb checkpoints", daemon=True)
                self._thread.start()
            self._due.notify()

    def _run(self) -> None:
        try:
            db = self._connect()
        except Exception:  # noqa: BLE001 - whoever writes next meets the same and tells
            with self._lock:
                self._thread, self._is_due = None, False
            return
        with closing(db):
            while self._wait():
                with suppress(apsw.Error):
                    _, self._moved_pages = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._is_due = False

    def _wait(self) -> bool:
        """Whether there is a checkpoint to make; when not, the thread ends, and the next commit starts another."""
        with self._lock:
            if not self._is_due and not self._is_closed:
                self._due.wait(IDLE_SECONDS)
            goes_on = self._is_due and not self._is_closed
            if not goes_on:
                self._thread = None
            return goes_on
