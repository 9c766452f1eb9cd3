"""The tree of a stored session, over SQL: each question reads the rows it needs, however long the session is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import apsw
import orjson

from sessiondb.connection import as_column, select, select_value, snapshot
from sessiondb.entries import is_current, numbered_entries, read_entries, with_id
from sessiondb.garbage import no_cyclic_garbage
from sessiondb.lines import read_slot
from sessiondb.metadata import Dialect
from sessiondb.rows import SELECT_PLACE_OF_ID, key_range, read_metadata
from sessiondb.tree import Entry, Label, Window, counts_usage, fold_label, role_of

# from the index alone: every append asks whether its new id is taken
SELECT_HAS_ID = "SELECT 1 FROM entry WHERE session_pk = :session_pk AND entry_id = :id LIMIT 1"

SELECT_BY_ID = """
SELECT e.pk, CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.session_pk = :session_pk AND e.entry_id = :id
ORDER BY e.pk DESC LIMIT 1
"""

SELECT_LAST = """
SELECT e.pk, CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.pk BETWEEN :first AND :last AND e.entry_id IS NOT NULL
ORDER BY e.pk DESC LIMIT 1
"""

SELECT_IDS = "SELECT entry_id, parent_id FROM entry WHERE pk = :pk"

# The walks. CROSS JOIN pins the plan: left to itself, SQLite may scan the table of all sessions. An order over the
# lines would have SQLite sort their bytes, on disk if need be; the depths are put in order here instead.

SELECT_UPWARD = """
WITH RECURSIVE up (pk, parent_pk, depth, type) AS (
  SELECT pk, parent_pk, depth, type FROM entry WHERE pk = :start
  UNION ALL
  SELECT e.pk, e.parent_pk, e.depth, e.type
  FROM up CROSS JOIN entry e ON e.pk = up.parent_pk
  WHERE up.depth > :top AND (:past_compactions OR up.type IS NOT 'compaction')
)
SELECT up.depth, up.pk, CAST(l.raw AS BLOB)
FROM up CROSS JOIN line l ON l.pk = up.pk
"""

SELECT_IS_ABOVE = """
WITH RECURSIVE up (pk, parent_pk, depth) AS (
  SELECT pk, parent_pk, depth FROM entry WHERE pk = :start
  UNION ALL
  SELECT e.pk, e.parent_pk, e.depth
  FROM up CROSS JOIN entry e ON e.pk = up.parent_pk
  WHERE up.depth > :depth
)
SELECT EXISTS (SELECT 1 FROM up WHERE up.pk = :pk)
"""

# The index has the few entries that are no messages, and all that is asked of them: the settings of a long session lie
# on a few of its pages, while in the table each is on another one.
SELECT_SETTINGS_ABOVE = """
WITH RECURSIVE up (pk, state_pk, depth, type) AS (
  SELECT pk, state_pk, depth, type FROM entry WHERE pk = :start
  UNION ALL
  SELECT e.pk, e.state_pk, e.depth, e.type
  FROM up CROSS JOIN entry e INDEXED BY ix_entry_not_message ON e.pk = up.state_pk AND e.type <> 'message'
)
SELECT pk, type FROM up
WHERE depth < :top AND pk <> :start
ORDER BY depth
"""

SELECT_LINES_OF_KEYS = """
SELECT e.depth, e.pk, CAST(l.raw AS BLOB)
FROM json_each(:keys) k CROSS JOIN entry e ON e.pk = k.value CROSS JOIN line l ON l.pk = k.value
ORDER BY e.depth
"""

SELECT_ASSISTANT_ABOVE = """
WITH RECURSIVE up (pk, parent_pk, depth, role) AS (
  SELECT pk, parent_pk, depth, NULL FROM entry WHERE pk = :start
  UNION ALL
  SELECT e.pk, e.parent_pk, e.depth, e.role
  FROM up CROSS JOIN entry e ON e.pk = up.parent_pk
  WHERE up.role IS NOT 'assistant'
)
SELECT up.depth, up.pk, CAST(l.raw AS BLOB)
FROM up CROSS JOIN line l ON l.pk = up.pk
WHERE up.role = 'assistant'
"""

# In the order in which ids were first seen, the last entry of each: the clients' index is a map.
SELECT_CHILDREN = """
SELECT e.pk, CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.pk BETWEEN :first AND :last AND e.parent_id IS :parent_id AND e.entry_id IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM entry o WHERE o.session_pk = e.session_pk AND o.entry_id = e.entry_id AND o.pk > e.pk
  )
ORDER BY (SELECT min(o.pk) FROM entry o WHERE o.session_pk = e.session_pk AND o.entry_id = e.entry_id)
"""

SELECT_LABELS = """
SELECT e.pk, CAST(l.raw AS BLOB)
FROM entry e INDEXED BY ix_entry_not_message CROSS JOIN line l ON l.pk = e.pk
WHERE e.pk BETWEEN :first AND :last AND e.type = 'label' AND e.type <> 'message'
ORDER BY e.pk
"""

SELECT_USAGE = """
SELECT e.pk, CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.pk BETWEEN :first AND :last AND (e.role = 'assistant' OR e.role = 'toolResult' AND e.tool = 'task')
ORDER BY e.pk
"""

SELECT_HAS_ASSISTANT = "SELECT EXISTS (SELECT 1 FROM entry WHERE pk BETWEEN :first AND :last AND role = 'assistant')"

SELECT_NEWEST_MESSAGE = """
SELECT e.pk, e.entry_id FROM entry e
WHERE e.pk BETWEEN :first AND :last AND e.type = 'message' AND e.time_ms IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM entry o WHERE o.session_pk = e.session_pk AND o.entry_id = e.entry_id AND o.pk > e.pk
  )
ORDER BY e.time_ms DESC, e.pk DESC LIMIT 1
"""

SELECT_LINKS = """
SELECT entry_id, parent_id FROM entry
WHERE pk BETWEEN :first AND :last AND entry_id IS NOT NULL
ORDER BY pk
"""

SELECT_DIALECT_AND_COUNT = "SELECT dialect, entry_count FROM session WHERE pk = :session_pk"

Row = tuple[int, bytes]
"""Key and bytes of an entry."""

Step = tuple[int, int, bytes]
"""Depth, key and bytes of an entry on a walk."""

ROOT_DEPTH: Final = 0

VOIDED_BY_THE_NEXT: Final = frozenset(
    {"thinking_level_change", "service_tier_change", "mode_change", "context_change"}
)  # fmt: skip
"""Settings of which the last alone counts, whatever it says. In pi that is so of a model change too; in xcsh each role
has a model of its own."""


class StoredTree:
    """A Tree over a session of the database. It keeps nothing: each call sees what is stored by then.

    The entries of old sessions (versions 1 and 2) depend on those before them, so there a call reads the whole session
    for as long as nobody has rewritten it.
    """

    def __init__(self, db: apsw.Connection, session_pk: int, dialect: Dialect | None = None) -> None:
        """`dialect`: whose contexts the windows are for, unless the stored one."""
        self._db = db
        self._dialect = dialect
        self._keys = {"session_pk": session_pk, **key_range(session_pk)}
        self._session_pk = session_pk
        self._is_current = False  # stays True once it is

    def get(self, entry_id: str) -> Entry | None:
        return self._first(SELECT_BY_ID, id=as_column(entry_id))

    def last(self) -> Entry | None:
        return self._first(SELECT_LAST)

    def entries(self) -> list[Any]:
        return read_entries(self._db, self._session_pk)

    def path(self, entry_id: str) -> list[Entry]:
        with snapshot(self._db):
            place = self._place_of(entry_id)
            return [] if place is None else self._values(self._walk(place[0]))

    def window(self, entry_id: str) -> Window:
        """As much of the path as a context needs. In omp sessions, whose contexts look at all of it, the whole path.

        Among the entries above are none that a later one of them makes void.
        """
        with snapshot(self._db):
            dialect = self._dialect or select_value(self._db, SELECT_DIALECT_AND_COUNT, self._keys)
            if dialect == "omp" or not self._reads_alone():
                return Window([], self.path(entry_id))
            place = self._place_of(entry_id)
            return Window([], []) if place is None else self._window(place[0], dialect)

    def children(self, parent_id: str | None) -> list[Entry]:
        wanted = None if parent_id is None else as_column(parent_id)
        found: list[Entry] = self._all(SELECT_CHILDREN, parent_id=wanted)
        return [entry for entry in found if entry.get("parentId", entry) == parent_id]

    def labels(self) -> dict[str, Label]:
        labels: dict[str, Label] = {}
        for entry in self._all(SELECT_LABELS):
            fold_label(labels, entry)
        return labels

    def has_assistant(self) -> bool:
        return bool(select_value(self._db, SELECT_HAS_ASSISTANT, self._keys))

    def usage_entries(self) -> Iterator[Entry]:
        if self._reads_alone():  # one after the other: they may be most of a long session
            return (self._value(pk, raw) for pk, raw in select(self._db, SELECT_USAGE, self._keys))
        return (entry for entry in self.entries() if counts_usage(entry))

    def latest_message_leaf(self) -> str | None:
        with snapshot(self._db):
            newest_pk, newest = next(select(self._db, SELECT_NEWEST_MESSAGE, self._keys), (0, None))
            if newest is None:
                return None
            # only where ids or parents are out of order can what hangs under it stand before it
            is_tangled = read_metadata(self._db, self._session_pk).tangled
            keys = self._keys if is_tangled else {**self._keys, "first": newest_pk}
            leaf, below = newest, {newest}
            for entry_id, parent_id in select(self._db, SELECT_LINKS, keys):
                if parent_id in below:
                    below.add(entry_id)
                if entry_id in below:
                    leaf = entry_id
            entry = self.get(leaf)  # a column cannot hold every id
            return None if entry is None else str(entry["id"])

    def __contains__(self, entry_id: str) -> bool:
        values = {"session_pk": self._session_pk, "id": as_column(entry_id)}
        return select_value(self._db, SELECT_HAS_ID, values) is not None

    def __len__(self) -> int:
        _, count = next(select(self._db, SELECT_DIALECT_AND_COUNT, self._keys), (None, 0))
        return int(count)

    # -- walks ---------------------------------------------------------------------------------------------------

    def _window(self, leaf: int, dialect: str) -> Window:
        steps = self._walk(leaf, past_compactions=False)
        path = self._values(steps)
        if path[0].get("type") != "compaction":
            return Window([], path)
        compaction = steps[0][1]
        kept = self._kept_above(steps[0], path[0].get("firstKeptEntryId"))
        if kept:
            steps, path = kept, self._values(kept) + path
        above = self._settings_above(compaction, steps[0][0], dialect)
        if not any(role_of(entry) == "assistant" for entry in path):
            above += select(self._db, SELECT_ASSISTANT_ABOVE, {"start": steps[0][1]})
        return Window(self._values(sorted(above)), path)

    def _settings_above(self, start: int, top: int, dialect: str) -> list[Step]:
        """The settings entries above both `start` and depth `top`, but those that a later one makes void."""
        void = VOIDED_BY_THE_NEXT | {"model_change"} if dialect == "pi" else VOIDED_BY_THE_NEXT
        last: dict[str | int, int] = {}
        for pk, kind in select(self._db, SELECT_SETTINGS_ABOVE, {"start": start, "top": top}):
            last[kind if kind in void else pk] = pk
        keys = orjson.dumps(list(last.values())).decode()
        return list(select(self._db, SELECT_LINES_OF_KEYS, {"keys": keys})) if last else []

    def _kept_above(self, compaction: Step, kept_id: Any) -> list[Step]:
        """The steps from the first kept entry to the one above the compaction; none when it is not above it."""
        place = self._place_of(kept_id) if type(kept_id) is str else None
        depth, pk, _ = compaction
        if place is None or place[1] >= depth:
            return []
        kept_pk, kept_depth = place
        if not select_value(self._db, SELECT_IS_ABOVE, {"start": pk, "pk": kept_pk, "depth": kept_depth}):
            return []
        return self._walk(pk, top=kept_depth)[:-1]

    def _walk(self, start: int, *, top: int = ROOT_DEPTH, past_compactions: bool = True) -> list[Step]:
        """The steps from the entry at depth `top`, or the last compaction, down to `start`."""
        values = {"start": start, "top": top, "past_compactions": past_compactions}
        return sorted(select(self._db, SELECT_UPWARD, values))

    def _place_of(self, entry_id: str) -> tuple[int, int] | None:
        """Key and depth of the last entry of that id."""
        found = select(self._db, SELECT_PLACE_OF_ID, {**self._keys, "id": as_column(entry_id)})
        return next(found, None)

    # -- bytes to entries ----------------------------------------------------------------------------------------

    def _first(self, query: str, **values: str) -> Entry | None:
        found: list[Entry] = self._all(query, **values)
        return found[0] if found else None

    def _all(self, query: str, **values: str | None) -> list[Any]:
        with snapshot(self._db):
            return self._values((0, pk, raw) for pk, raw in select(self._db, query, {**self._keys, **values}))

    def _values(self, steps: Iterable[Step]) -> list[Any]:
        """The entries as the client would hold them."""
        if self._reads_alone():
            with no_cyclic_garbage():
                return [self._value(pk, raw) for _, pk, raw in steps]
        values = {pk: value for pk, _, value in numbered_entries(self._db, self._session_pk)}
        return [values[pk] for _, pk, _ in steps]

    def _value(self, pk: int, raw: bytes) -> Any:
        value = read_slot(raw)
        if type(value) is dict and type(value.get("id")) is not str:
            return with_id(value, *next(select(self._db, SELECT_IDS, {"pk": pk})))
        return value

    def _reads_alone(self) -> bool:
        if not self._is_current:
            self._is_current = is_current(self._db, self._session_pk)
        return self._is_current
