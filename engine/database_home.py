"""A live session in the database: each append is one short transaction, through the door that imports use."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import apsw

from sessiondb import forms, live_rows, rows, size_control
from sessiondb.connection import StoreConnection, as_column, live_transaction, select_value, transaction
from sessiondb.entries import current_header, read_header
from sessiondb.errors import SessionNotFoundError, SessionWriteConflictError, sqlite_errors
from sessiondb.homes import NAMING_KEYS, fresh_metadata, last_id, note, with_changes
from sessiondb.jsonl import format_time, header_with_slot, is_outdated, parse_title_slot, strip_bom
from sessiondb.lines import Indexer, read_slot
from sessiondb.metadata import Dialect, Metadata
from sessiondb.schema import SLOT_BITS
from sessiondb.session_lines import SessionLines, encode_line, read_session_lines
from sessiondb.size_control import restored
from sessiondb.stored_tree import StoredTree
from sessiondb.tree import Entry, Label, MemoryTree, Tree, Window

if TYPE_CHECKING:
    from sessiondb.sessions import SessionInfo
    from sessiondb.store import Store

NOTHING_IMPORTED: Final = hashlib.sha256().digest()


class DatabaseHome:
    """One session of a store. What is held is in memory; once written, entries are read as they are asked for.

    An append that fails is rolled back and may be tried again. Another manager, or an import, may write to the same
    session meanwhile: each append goes behind what is there, as a child of its own manager's leaf.
    """

    def __init__(self, store: Store, header: Entry, metadata: Metadata, *, session_id: str, durable: bool) -> None:
        self.dialect = metadata.dialect[0]
        self._store, self._durable = store, durable
        self._session_id = session_id
        self._header = header  # of a session without one in its lines, or that is not written yet
        self._metadata = metadata
        self._title_slot: bytes | None = None
        self._pk: int | None = None
        self._held = MemoryTree()
        self._unwritten: list[Entry] = []
        self._revised: Entry | None = None  # the header that the next rewrite writes
        self._changed: dict[str, Entry] = {}  # and the entries, by id
        self._uncut: dict[str, Entry] = {}  # entries that were cut for the disk, as they are in memory
        self._end: _End | None = None
        self._absent_id: str | None = None  # looked for since the last append, and not there
        self._stored: tuple[apsw.Connection, _LiveTree] | None = None
        self._made: live_rows.StoredPlace | None = None  # of a session that this home made: where it left its end

    @property
    def header(self) -> Entry:
        """As it is stored now, since another manager may have renamed the session; while that waits, as it will be."""
        if self._revised is not None or self._pk is None:
            return self._revised or self._header
        with self._errors():
            return _read_header(self._db, self._pk, self.dialect, self._session_id) or self._header

    @property
    def metadata(self) -> Metadata:
        if self._pk is None or self._unwritten:
            return self._metadata
        with self._errors():
            return rows.read_metadata(self._db, self._pk)

    @property
    def location(self) -> str:
        return self._session_id

    @property
    def is_written(self) -> bool:
        return self._pk is not None

    @property
    def tree(self) -> Tree:
        if self._pk is None or self._unwritten:
            return self._held
        stored, db = self._stored, self._db
        if stored is None or stored[0] is not db:  # another thread has another connection, and may come in between
            tree = StoredTree(db, self._pk, self.dialect)
            self._stored = stored = db, _LiveTree(tree, self._restored, self._note_absent, self._errors)
        return stored[1]

    def _note_absent(self, entry_id: str) -> None:
        self._absent_id = entry_id

    @property
    def _db(self) -> StoreConnection:
        return self._store.connection

    # -- writing -------------------------------------------------------------------------------------------------

    def hold(self, entry: Entry) -> None:
        if self._pk is not None and not self._unwritten:  # pi's gate is closed: no answer is among the entries yet
            self._metadata = self.metadata
            self._held = MemoryTree(self.tree.entries())
        note(self._metadata, entry)
        self._held.add(entry)
        self._unwritten.append(entry)

    def take_back(self) -> bool:
        self._unwritten.pop()
        self._held = MemoryTree(self._held.entries()[:-1])
        return True

    def write_held(self) -> None:
        if self._pk is None:
            self._create(self._held.entries())
        elif self._revised is not None or self._changed:
            self._rewrite(self._unwritten)
        elif self._unwritten:
            self._append(self._unwritten)
        self._unwritten, self._held = [], MemoryTree()
        self._revised, self._changed = None, {}

    def append(self, entry: Entry) -> None:
        self._append([entry])

    def _create(self, entries: Sequence[Any]) -> None:
        self._store.require_writable()
        with self._errors():
            pk = next(rows.reserve_session_keys(self._db, 1))
            given = self._metadata
            metadata = Metadata(as_column(given.id_hint), given.dialect_given, given.folder)
            with self._transaction() as db:
                indexer = Indexer(pk, metadata, max_line=rows.longest_line(db))
                rows.stage_session(db, indexer, _now_ms())
                session = SessionLines(self.header, list(entries), title_slot=self._title_slot)
                for line in session.lines(self._encode):
                    indexer.add(line + b"\n")
                rows.write_rows(db, indexer.take_rows())
                rows.finish_session(
                    db, indexer, digest=NOTHING_IMPORTED, imported_bytes=0, now_ms=_now_ms()
                )  # fmt: skip
                made = live_rows.place_of(db, pk)
        self._pk, self._made = pk, made

    def _append(self, entries: Sequence[Entry]) -> None:
        self._store.require_writable()
        assert self._pk is not None
        with self._errors(), self._transaction() as db:
            lines = [self._encode(entry) + b"\n" for entry in entries]
            end, self._end = self._current_end(db), None  # should this fail, it has gone too far
            if end.is_outdated or any(self._names_what_lines_lack(db, end, entry) for entry in entries):
                self._replace(db, [*self._current_lines(db), *lines])
                live_rows.set_pointer(db, self._pk, entries[-1]["id"])
                return
            place = live_rows.extend_session(db, end.indexer, lines, end.place)
            self._note_own_write(db)
        self._absent_id = None
        if place is not None:
            self._end = _End(end.indexer, place, is_outdated=False, named=entries[-1]["id"])

    def _current_end(self, db: apsw.Connection) -> _End:
        """What is known of the stored end; looked up anew when somebody else has written since."""
        assert self._pk is not None
        end = self._end
        place = live_rows.place_of(db, self._pk)
        if place is None:
            raise SessionNotFoundError(self.location)
        if end is not None and end.place == place:  # and what was looked for in vain is not there now either
            live_rows.note_absent(end.indexer, self._absent_id)
            return end
        if end is not None:
            self._uncut.clear()  # the other may have written those again
        indexer = live_rows.resume(db, self._pk)
        live_rows.end_last_line(db, indexer)
        header = read_header(db, self._pk)
        return _End(indexer, place, is_outdated=header is not None and is_outdated(header.get("version")))

    def _names_what_lines_lack(self, db: apsw.Connection, end: _End, entry: Entry) -> bool:
        """Whether the entry names one that came without an id: the lines must have it then."""
        for key in NAMING_KEYS:
            named = entry.get(key)
            if type(named) is not str or named == end.named or named == entry["id"]:
                continue
            slot = end.indexer.place.slot_of.get(named)
            if slot is not None:
                raw = select_value(db, live_rows.SELECT_SLOT, {"pk": (end.indexer.session_pk << SLOT_BITS) + slot})
                if type(read_slot(raw).get("id")) is not str:
                    return True
        return False

    # -- rewriting -----------------------------------------------------------------------------------------------

    def revise(self, header: Entry, changed: Iterable[Entry] = ()) -> None:
        if self._pk is None:
            self._header = header
        else:
            self._revised = header
            self._changed |= {entry["id"]: entry for entry in changed}
        self._held = with_changes(self._held, changed)

    def rewrite(self) -> None:
        try:
            self._rewrite(())
        finally:  # what failed is not waiting to happen
            self._revised, self._changed = None, {}

    def _rewrite(self, more: Sequence[Entry]) -> None:
        self._store.require_writable()
        with self._errors(), self._transaction() as db:
            self._replace(db, [*self._current_lines(db), *(self._encode(entry) for entry in more)])

    def set_title_slot(self, slot: bytes, header: Entry) -> None:
        if self._pk is None:
            self._title_slot, self._header = slot, header
            return
        self._store.require_writable()
        with self._errors(), self._transaction() as db:
            first, *others = self._lines_with_ids(db)
            kept = [] if parse_title_slot(first) is not None else [strip_bom(first)]
            self._replace(db, [slot, *kept, *others])

    def _lines_with_ids(self, db: apsw.Connection) -> list[bytes]:
        """The stored lines; written anew when some came without an id, which follows from the line's number."""
        session = self._read_lines(db)
        if session.derived_ids or session.was_outdated:
            return list(session.lines())
        return list(rows.read_lines(db, self._require_pk()))

    def _read_lines(self, db: apsw.Connection) -> SessionLines:
        old = rows.read_metadata(db, self._require_pk())
        fresh = Metadata(old.id_hint, old.dialect_given, old.folder)
        return read_session_lines(rows.read_lines(db, self._require_pk()), fresh)

    def _current_lines(self, db: apsw.Connection) -> list[bytes]:
        """The session's lines as they are to be: version 3, this header, changed entries for those of their id."""
        session = self._read_lines(db)
        session.header = self._revised or session.header or self._header
        last = {entry["id"]: place for place, entry in enumerate(session.entries) if type(entry) is dict}
        for entry_id, entry in self._changed.items():
            session.entries[last[entry_id]] = self._controlled(entry)
        return list(session.lines())

    def _replace(self, db: apsw.Connection, lines: Iterable[bytes]) -> None:
        indexer = rows.restart(db, self._require_pk())
        rows.replace_lines(db, indexer, (line.removesuffix(b"\n") + b"\n" for line in lines))
        self._note_own_write(db)
        self._end = None

    def _note_own_write(self, db: apsw.Connection) -> None:
        """A session that this home made ends where it left it, unless others write to it."""
        if self._made is not None:
            self._made = live_rows.place_of(db, self._require_pk())

    def _require_pk(self) -> int:
        if self._pk is None:
            raise SessionNotFoundError(self.location)
        return self._pk

    # -- the leaf, and other sessions --------------------------------------------------------------------------------

    def note_leaf(self, leaf_id: str | None) -> None:
        if self._pk is not None and not self._store.read_only:
            with self._errors():
                live_rows.set_pointer(self._db, self._pk, leaf_id)

    def saved_leaf(self) -> str | None:
        if self._pk is None:
            return last_id(self._held)
        with self._errors():
            pointer_pk, entry_id = live_rows.saved_pointer(self._db, self._pk)
        return None if pointer_pk == 0 else last_id(self.tree) if entry_id is None else entry_id

    def beside(self, header: Entry, entries: Iterable[Any], *, title_slot: bytes | None = None) -> DatabaseHome:
        return new_database_home(
            self._store, header, entries, fresh_metadata(self._metadata, header), title_slot=title_slot,
            durable=self._durable,
        )  # fmt: skip

    def flush(self) -> None:
        pass  # every append was committed

    def close(self) -> None:
        self._end = None

    def discard(self) -> None:
        known = self._made
        self.close()
        if known is None or self._pk is None:
            return
        with self._errors(), self._transaction() as db:
            found = live_rows.place_of(db, self._pk)
            if found is not None and found != known:
                raise SessionWriteConflictError(f"session {self._session_id}", known[1], found[1])
            rows.delete_session(db, self._pk)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _encode(self, value: Any) -> bytes:
        raw = encode_line(value)
        if type(value) is not dict or not size_control.needs_control(raw, dialect=self.dialect):
            return raw
        controlled = self._controlled(value)
        return raw if controlled is value else encode_line(controlled)

    def _controlled(self, entry: Entry) -> Entry:
        """What is written for an entry; the entry itself is remembered when that does not give it back."""
        controlled: Entry = size_control.for_disk(entry, self._store.blobs, dialect=self.dialect)
        if type(entry_id := entry.get("id")) is str:
            self._uncut.pop(entry_id, None)
            if controlled is not entry and restored(controlled, self._store.blobs, entry_id) != entry:
                self._uncut[entry_id] = entry
        return controlled

    def _restored(self, entry: Any) -> Any:
        """The entry as it is in memory: uncut when this manager wrote it, images put back."""
        if type(entry) is not dict:
            return entry
        if (uncut := self._uncut.get(entry.get("id", ""))) is not None:
            return uncut
        return restored(entry, self._store.blobs, f"session {self._session_id}")

    def _errors(self) -> sqlite_errors:
        return sqlite_errors(str(self._store.database))

    def _transaction(self) -> live_transaction:
        return self._store.live_transaction(durable=self._durable)


@dataclass(frozen=True, slots=True)
class _End:
    """What one manager knows of where its stored session ends. Dropped as a whole whenever that is in doubt.

    `place` is what `live_rows.place_of` says as long as nobody else writes. `is_outdated`: the lines are of an older
    version. `named`: an id that stands in its line.
    """

    indexer: Indexer
    place: live_rows.StoredPlace
    is_outdated: bool
    named: str = ""


def new_database_home(
    store: Store, header: Entry, entries: Iterable[Any], metadata: Metadata, *, title_slot: bytes | None = None,
    durable: bool,
) -> DatabaseHome:  # fmt: skip
    """A home for a session that the store does not have yet."""
    metadata.note_header(header, 0)
    home = DatabaseHome(store, header, metadata, session_id=header["id"], durable=durable)
    home._title_slot = title_slot
    for entry in entries:
        home.hold(entry)
    return home


def open_database_home(
    store: Store, info: SessionInfo, *, durable: bool, dialect: Dialect | None = None
) -> DatabaseHome:  # fmt: skip
    """The home of a stored session. A dialect that is asked for is the session's from now on."""
    with sqlite_errors(str(store.database)):
        metadata = rows.read_metadata(store.connection, info.pk)
        if dialect is not None and dialect != metadata.dialect_given:
            metadata.dialect_given = dialect
            if not store.read_only:
                with transaction(store.connection):
                    live_rows.set_dialect(store.connection, info.pk, dialect)
        header = _read_header(store.connection, info.pk, metadata.dialect[0], info.id)
    if header is None:  # the lines have none: what is known stands for it, and is written with the next rewrite
        cwd = info.cwd or os.getcwd()  # noqa: PTH109 - paths are text here
        header = forms.header(info.id, format_time(info.created_ms or info.modified_ms or 0), cwd)
    home = DatabaseHome(store, header, metadata, session_id=info.id, durable=durable)
    home._pk = info.pk
    return home


def import_database_home(store: Store, path: str, *, durable: bool) -> DatabaseHome:
    """The home of the session in a file, imported unless the store has it. SessionImportError for no session.

    What was imported stays, whatever becomes of the home: others may have found it by now, and importing it again
    changes nothing.
    """
    return open_database_home(store, store.import_session(path), durable=durable)


def _read_header(db: apsw.Connection, session_pk: int, dialect: Dialect, session_id: str) -> Entry | None:
    """The stored session's header of version 3, with omp's title in it; None when its lines have none.

    A header without an id has the one that the session goes by.
    """
    header = current_header(db, session_pk)
    if header is None:
        return None
    if type(header.get("id")) is not str:
        header = {**header, "id": session_id}
    slot = parse_title_slot(next(rows.read_lines(db, session_pk))) if dialect == "omp" else None
    return header if slot is None else header_with_slot(header, slot)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _LiveTree:
    """A stored tree whose entries are as they are in memory, and whose errors are ours."""

    def __init__(
        self, stored: StoredTree, restore: Callable[[Any], Any], note_absent: Callable[[str], None],
        errors: Callable[[], sqlite_errors],
    ) -> None:  # fmt: skip
        self._stored = stored
        self._restore = restore
        self._note_absent = note_absent
        self._errors = errors

    def get(self, entry_id: str) -> Entry | None:
        with self._errors():
            entry: Entry | None = self._restore(self._stored.get(entry_id))
        return entry

    def last(self) -> Entry | None:
        with self._errors():
            entry: Entry | None = self._restore(self._stored.last())
        return entry

    def entries(self) -> list[Any]:
        with self._errors():
            return [self._restore(entry) for entry in self._stored.entries()]

    def path(self, entry_id: str) -> list[Entry]:
        with self._errors():
            return [self._restore(entry) for entry in self._stored.path(entry_id)]

    def window(self, entry_id: str) -> Window:
        with self._errors():
            above, path = self._stored.window(entry_id)
            return Window(above, [self._restore(entry) for entry in path])

    def children(self, parent_id: str | None) -> list[Entry]:
        with self._errors():
            return [self._restore(entry) for entry in self._stored.children(parent_id)]

    def labels(self) -> dict[str, Label]:
        with self._errors():
            return self._stored.labels()

    def has_assistant(self) -> bool:
        with self._errors():
            return self._stored.has_assistant()

    def usage_entries(self) -> Iterator[Entry]:
        with self._errors():
            for entry in self._stored.usage_entries():
                yield self._restore(entry)

    def latest_message_leaf(self) -> str | None:
        with self._errors():
            return self._stored.latest_message_leaf()

    def __contains__(self, entry_id: str) -> bool:
        with self._errors():
            if entry_id in self._stored:
                return True
        self._note_absent(entry_id)
        return False

    def __len__(self) -> int:
        with self._errors():
            return len(self._stored)
