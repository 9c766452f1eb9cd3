"""A live session in the database: each append is one short transaction, through the door that imports use."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import apsw

from sessiondb import forms, live_rows, rows, size_control
from sessiondb.connection import live_transaction, select_value, transaction
from sessiondb.entries import current_header
from sessiondb.errors import SessionNotFoundError, sqlite_errors
from sessiondb.homes import NAMING_KEYS, fresh_metadata, last_id, note, with_changes
from sessiondb.jsonl import CURRENT_VERSION, encode_entry, format_time, header_with_slot, parse_title_slot, strip_bom
from sessiondb.lines import Indexer, read_slot
from sessiondb.metadata import Dialect, Metadata, text_of
from sessiondb.schema import SLOT_BITS
from sessiondb.session_lines import SessionLines, read_session_lines
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

    def __init__(self, store: Store, header: Entry, metadata: Metadata, *, durable: bool) -> None:
        self._header = header
        self._metadata = metadata
        self._session_id: str = header["id"]
        self.dialect = metadata.dialect[0]
        self._store = store
        self._durable = durable
        self._pk: int | None = None
        self._parent_pk: int | None = None
        self._title_slot: bytes | None = None  # of a session that is not written yet
        self._revised: Entry | None = None  # the header that the next rewrite writes
        self._held = MemoryTree()
        self._unwritten: list[Entry] = []
        self._changed: dict[str, Entry] = {}  # what the next rewrite writes, by id
        self._uncut: dict[str, Entry] = {}  # entries that were cut for the disk, as they are in memory
        self._indexer: Indexer | None = None  # stands at
        self._end: tuple[int, int, str] | None = None
        self._stored: tuple[apsw.Connection, _LiveTree] | None = None
        self._absent_id: str | None = None  # looked for since the last append, and not there
        self._has_pointer = True  # as far as is known
        self._named: set[str] = set()  # ids that stand in their lines, as far as that was looked at

    @property
    def header(self) -> Entry:
        """As it is stored now, since another manager may have renamed the session; while that waits, as it will be."""
        if self._pk is None or self._revised is not None:
            return self._revised or self._header
        with self._sqlite_errors():
            return _read_header(self._db, self._pk, self.dialect) or self._header

    @property
    def metadata(self) -> Metadata:
        if self._pk is None or self._unwritten:
            return self._metadata
        with self._sqlite_errors():
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
        if self._stored is None or self._stored[0] is not self._db:  # another thread has another connection
            tree = StoredTree(self._db, self._pk, self.dialect)
            self._stored = self._db, _LiveTree(tree, self._restored, self._note_absent)
        return self._stored[1]

    def _note_absent(self, entry_id: str) -> None:
        self._absent_id = entry_id

    @property
    def _db(self) -> apsw.Connection:
        return self._store.connection

    # -- writing -------------------------------------------------------------------------------------------------

    def hold(self, entry: Entry) -> None:
        if self._pk is not None and not self._unwritten:
            self._metadata = self.metadata
            self._held = MemoryTree(self.tree.entries())  # a session without an answer yet is a short one
        note(self._metadata, entry)
        self._held.add(entry)
        self._unwritten.append(entry)

    def write_held(self) -> None:
        unwritten = self._unwritten
        if self._pk is None:
            self._create(self._held.entries())
        elif unwritten:
            self._write(unwritten)
        self._unwritten, self._held = [], MemoryTree()

    def append(self, entry: Entry) -> None:
        self._write([entry])

    def _create(self, entries: Sequence[Any]) -> None:
        self._store.require_writable()
        with self._sqlite_errors():
            pk = next(rows.reserve_session_keys(self._db, 1))
            given = self._metadata
            metadata = Metadata(given.id_hint, given.dialect_given, given.folder)
            with self._transaction() as db:
                indexer = Indexer(pk, metadata, max_line=rows.longest_line(db))
                rows.stage_session(db, indexer, _now_ms())
                for line in self._first_lines(entries):
                    indexer.add(line)
                rows.write_rows(db, indexer.take_rows())
                rows.finish_session(
                    db, indexer, digest=NOTHING_IMPORTED, imported_bytes=0, now_ms=_now_ms()
                )  # fmt: skip
                if self._parent_pk is not None:
                    live_rows.set_parent(db, pk, self._parent_pk)
        self._pk = pk

    def _first_lines(self, entries: Iterable[Any]) -> Iterator[bytes]:
        session = SessionLines(self.header, list(entries), title_slot=self._title_slot)
        return (line + b"\n" for line in session.lines(self._encode))

    def _write(self, entries: Sequence[Entry]) -> None:
        self._store.require_writable()
        assert self._pk is not None
        with self._sqlite_errors(), self._transaction() as db:
            lines = [self._encode(entry) + b"\n" for entry in entries]
            indexer, self._indexer = self._current_indexer(db), None  # should this fail, it has gone too far
            if self._must_migrate(indexer, entries[0]):
                self._replace(db, [*self._current_lines(db), *lines])
                live_rows.clear_pointer(db, self._pk)
                return
            for line in lines:
                indexer.add(line)
            end = live_rows.extend_session(db, indexer)
            if self._has_pointer:
                live_rows.clear_pointer(db, self._pk)
        self._indexer, self._end, self._has_pointer = indexer, end, False
        self._absent_id = None

    def _current_indexer(self, db: apsw.Connection) -> Indexer:
        """The indexer at the session's end, read anew when somebody else has written since."""
        assert self._pk is not None
        indexer = self._indexer
        if indexer is None or live_rows.place_of(db, self._pk) != self._end:
            indexer = live_rows.resume(db, self._pk)
            if indexer is None:
                raise SessionNotFoundError(self.location)
            live_rows.end_last_line(db, indexer)
        else:  # and the last id that was looked for in vain is not there now either
            live_rows.note_absent(indexer, self._absent_id)
        return indexer

    def _must_migrate(self, indexer: Indexer, entry: Entry) -> bool:
        """Whether the session's lines must be written again first.

        Those of an older version are; and those without ids, which the new entry's parentId could not name.
        """
        if indexer.metadata.version < CURRENT_VERSION:
            return True
        for named in {text_of(entry.get(key)) or "" for key in NAMING_KEYS} - self._named:
            slot = indexer.place.slot_of.get(named)
            if slot is not None:
                raw = select_value(self._db, live_rows.SELECT_SLOT, {"pk": (indexer.session_pk << SLOT_BITS) + slot})
                if read_slot(raw).get("id") != named:
                    return True
        self._named = {entry["id"]}
        return False

    # -- rewriting -----------------------------------------------------------------------------------------------

    def revise(self, header: Entry, changed: Iterable[Entry] = ()) -> None:
        self._revised = header
        self._changed |= {entry["id"]: entry for entry in changed}
        self._held = with_changes(self._held, self._changed.values())

    def rewrite(self) -> None:
        self._store.require_writable()
        with self._sqlite_errors(), self._transaction() as db:
            self._replace(db, self._current_lines(db))
        self._changed.clear()
        self._revised = None

    def set_title_slot(self, slot: bytes) -> None:
        self._title_slot = slot
        if self._pk is None:
            return
        self._store.require_writable()
        with self._sqlite_errors(), self._transaction() as db:
            first, *others = rows.read_lines(db, self._pk)
            kept = [] if parse_title_slot(first) is not None else [strip_bom(first)]
            self._replace(db, [slot, *kept, *others])

    def _current_lines(self, db: apsw.Connection) -> list[bytes]:
        """The session's lines as they are to be: version 3, this header, changed entries for those of their id."""
        assert self._pk is not None
        old = rows.read_metadata(db, self._pk)
        session = read_session_lines(
            rows.read_lines(db, self._pk), Metadata(old.id_hint, old.dialect_given, old.folder)
        )  # fmt: skip
        session.header = self._revised or session.header or self._header
        last = {entry["id"]: place for place, entry in enumerate(session.entries) if type(entry) is dict}
        for entry_id, entry in self._changed.items():
            session.entries[last[entry_id]] = size_control.for_disk(entry, self._store.blobs, dialect=self.dialect)
        return [line + b"\n" for line in session.lines()]

    def _replace(self, db: apsw.Connection, lines: Iterable[bytes]) -> None:
        assert self._pk is not None
        indexer = rows.restart(db, self._pk)
        rows.replace_lines(db, indexer, lines)
        self._indexer = None

    # -- the leaf, and other sessions --------------------------------------------------------------------------------

    def note_leaf(self, leaf_id: str | None) -> None:
        if self._pk is None or self._store.read_only:
            return
        with self._sqlite_errors():
            live_rows.set_pointer(self._db, self._pk, leaf_id)
        self._has_pointer = True

    def saved_leaf(self) -> str | None:
        if self._pk is None:
            return last_id(self._held)
        with self._sqlite_errors():
            pointer_pk, entry_id = live_rows.saved_pointer(self._db, self._pk)
        return last_id(self.tree) if pointer_pk is None else entry_id

    def beside(self, header: Entry, entries: Iterable[Any], *, title_slot: bytes | None = None) -> DatabaseHome:
        home = new_database_home(
            self._store, header, entries, fresh_metadata(self._metadata, header), title_slot=title_slot,
            durable=self._durable,
        )  # fmt: skip
        if header.get("parentSession") == self.location:
            home._parent_pk = self._pk
        return home

    def flush(self) -> None:
        pass  # every append was committed

    def close(self) -> None:
        self._indexer = None

    # -- helpers -------------------------------------------------------------------------------------------------

    def _encode(self, value: Any) -> bytes:
        raw = encode_entry(value)
        if type(value) is not dict or not size_control.needs_control(raw, dialect=self.dialect):
            return raw
        controlled = size_control.for_disk(value, self._store.blobs, dialect=self.dialect)
        if controlled is value:
            return raw
        if type(entry_id := value.get("id")) is str:
            self._uncut[entry_id] = value
        return encode_entry(controlled)

    def _restored(self, entry: Any) -> Any:
        """The entry as it is in memory: uncut when this manager wrote it, images put back."""
        if type(entry) is not dict:
            return entry
        if (uncut := self._uncut.get(entry.get("id", ""))) is not None:
            return uncut
        return restored(entry, self._store.blobs, f"session {self._session_id}")

    def _sqlite_errors(self) -> sqlite_errors:
        return sqlite_errors(str(self._store.database))

    def _transaction(self) -> live_transaction:
        return live_transaction(self._db, durable=self._durable)


def new_database_home(
    store: Store, header: Entry, entries: Iterable[Any], metadata: Metadata, *, title_slot: bytes | None = None,
    durable: bool,
) -> DatabaseHome:  # fmt: skip
    """A home for a session that the store does not have yet."""
    metadata.note_header(header, 0)
    home = DatabaseHome(store, header, metadata, durable=durable)
    home._title_slot = title_slot
    for entry in entries:
        home.hold(entry)
    return home


def open_database_home(
    store: Store, info: SessionInfo, *, durable: bool, dialect: Dialect | None = None
) -> DatabaseHome:  # fmt: skip
    """The home of a stored session. A dialect that is asked for is the session's from now on."""
    with sqlite_errors(str(store.database)):
        if dialect is not None and dialect != info.dialect and not store.read_only:
            with transaction(store.connection):
                live_rows.set_dialect(store.connection, info.pk, dialect)
        metadata = rows.read_metadata(store.connection, info.pk)
        metadata.dialect_given = dialect or metadata.dialect_given
        header = _read_header(store.connection, info.pk, metadata.dialect[0])
    if header is None:  # the lines have none: what is known stands for it, and is written with the next rewrite
        header = forms.header(info.id, format_time(info.created_ms or info.modified_ms or 0), info.cwd or "")
    home = DatabaseHome(store, header, metadata, durable=durable)
    home._pk = info.pk
    return home


def _read_header(db: apsw.Connection, session_pk: int, dialect: Dialect) -> Entry | None:
    """The stored session's header of version 3, with omp's title in it; None when its lines have none."""
    header = current_header(db, session_pk)
    if header is None or dialect != "omp":
        return header
    slot = parse_title_slot(next(rows.read_lines(db, session_pk)))
    return header if slot is None else header_with_slot(header, slot)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _LiveTree:
    """A stored tree whose entries are as they are in memory."""

    def __init__(
        self, stored: StoredTree, restore: Callable[[Any], Any], note_absent: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._stored = stored
        self._restore = restore
        self._note_absent = note_absent

    def get(self, entry_id: str) -> Entry | None:
        entry: Entry | None = self._restore(self._stored.get(entry_id))
        return entry

    def last(self) -> Entry | None:
        entry: Entry | None = self._restore(self._stored.last())
        return entry

    def entries(self) -> list[Any]:
        return [self._restore(entry) for entry in self._stored.entries()]

    def path(self, entry_id: str) -> list[Entry]:
        return [self._restore(entry) for entry in self._stored.path(entry_id)]

    def window(self, entry_id: str) -> Window:
        above, path = self._stored.window(entry_id)
        return Window(above, [self._restore(entry) for entry in path])

    def children(self, parent_id: str | None) -> list[Entry]:
        return [self._restore(entry) for entry in self._stored.children(parent_id)]

    def labels(self) -> dict[str, Label]:
        return self._stored.labels()

    def has_assistant(self) -> bool:
        return self._stored.has_assistant()

    def usage_entries(self) -> Iterator[Entry]:
        return (self._restore(entry) for entry in self._stored.usage_entries())

    def latest_message_leaf(self) -> str | None:
        return self._stored.latest_message_leaf()

    def __contains__(self, entry_id: str) -> bool:
        if entry_id in self._stored:
            return True
        self._note_absent(entry_id)
        return False

    def __len__(self) -> int:
        return len(self._stored)
