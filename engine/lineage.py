"""Which session another came from: what `parent_session`, an id or a path, names in this database.

It names a session when exactly one of that id, or seen under that path, is in the database and not superseded. What
that is depends on what else is held, so a link is made anew, both ways, with each session that comes, goes or is
superseded, and never depends on the order of import.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import apsw

from sessiondb.connection import select, select_value

# The + keeps the index on path in use: its values are of any type, and a column of text would ask for text.
PARENT: Final = """
(
  SELECT max(p.pk) FROM (
    SELECT i.pk FROM session i
    WHERE i.id = c.parent_session AND i.superseded = 0 AND i.staged_by IS NULL
    UNION
    SELECT s.pk FROM source o CROSS JOIN session s ON s.pk = o.session_pk
    WHERE o.path = +c.parent_session AND s.superseded = 0 AND s.staged_by IS NULL
  ) p
  WHERE p.pk <> c.pk
  HAVING count(*) = 1
)
"""

SELECT_PARENT = f"SELECT {PARENT} FROM session c WHERE c.pk = :pk"

UPDATE_PARENT = "UPDATE session SET parent_pk = :parent WHERE pk = :pk AND parent_pk IS NOT :parent"

SELECT_NAMING = """
SELECT c.pk FROM session s CROSS JOIN session c ON c.parent_session = s.id WHERE s.pk = :pk
UNION
SELECT c.pk FROM source o CROSS JOIN session c ON c.parent_session = o.path WHERE o.session_pk = :pk
UNION
SELECT c.pk FROM session c WHERE c.parent_pk = :pk
"""

COUNT_WRONG_PARENTS = f"SELECT count(*) FROM session c WHERE c.staged_by IS NULL AND c.parent_pk IS NOT {PARENT}"


def link_lineage(db: apsw.Connection, session_pk: int) -> None:
    """Link the session with its parent, and those that may be its children with it. Call it when a session was
    written, is seen under another path, or is superseded or no longer."""
    link_parents(db, [session_pk, *naming(db, session_pk)])


def naming(db: apsw.Connection, session_pk: int) -> list[int]:
    """The sessions whose parent is, or may be, this one."""
    return [pk for (pk,) in select(db, SELECT_NAMING, {"pk": session_pk})]


def link_parents(db: apsw.Connection, session_pks: Iterable[int]) -> None:
    """Link each of the sessions with its parent, where that can be told."""
    for pk in session_pks:
        db.execute(UPDATE_PARENT, {"pk": pk, "parent": select_value(db, SELECT_PARENT, {"pk": pk})})


def count_wrong_links(db: apsw.Connection) -> int:
    """How many sessions are linked with another parent than their header names."""
    return int(select_value(db, COUNT_WRONG_PARENTS))
