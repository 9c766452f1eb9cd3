"""Sessions that share an id: one may be the other, exported again when it had grown."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import apsw
import orjson

from sessiondb.connection import select
from sessiondb.rows import read_lines

SELECT_NAMESAKES = """
SELECT o.pk, o.line_count, o.created_ms, o.digest, o.fold
FROM session s JOIN session o ON o.id = s.id AND o.staged_by IS NULL
WHERE s.pk = :pk
ORDER BY o.line_count, o.created_ms, o.digest
"""

SELECT_GROWN_FROM = """
SELECT o.pk, o.line_count, o.created_ms, o.digest, o.fold FROM session o
WHERE o.grown_from = :pk
ORDER BY o.pk
"""

UPDATE_NOT_GROWN = "UPDATE session SET grown_from = NULL WHERE pk = :pk"

UPDATE_GROWN = """
UPDATE session SET grown_from = :shorter
WHERE pk = :longer
  AND NOT EXISTS (SELECT 1 FROM session g JOIN session s ON s.pk = :shorter
                  WHERE g.pk = session.grown_from AND g.line_count > s.line_count)
"""


def link_kin(db: apsw.Connection, session_pk: int) -> int:
    """Link the session with those of the same id that it continues or that continue it; how many others have the id.

    One continues another when all lines behind its header begin with all lines behind the other's header; of several
    the longest is named in `grown_from`, so that the order of import does not matter.
    """
    namesakes = list(select(db, SELECT_NAMESAKES, {"pk": session_pk}))
    own_place = next(i for i, row in enumerate(namesakes) if row[0] == session_pk)
    for longer in list(select(db, SELECT_GROWN_FROM, {"pk": session_pk})):
        if not _continues(db, namesakes[own_place], longer):  # this one went on another way
            db.execute(UPDATE_NOT_GROWN, {"pk": longer[0]})
    strangers = 0
    for place, namesake in enumerate(namesakes):
        if namesake[0] == session_pk:
            continue
        shorter, longer = (namesakes[own_place], namesakes[place]) if place > own_place else (
            namesakes[place], namesakes[own_place],
        )  # fmt: skip
        if _continues(db, shorter, longer):
            db.execute(UPDATE_GROWN, {"shorter": shorter[0], "longer": longer[0]})
        else:
            strangers += 1
    return strangers


def _continues(db: apsw.Connection, shorter: tuple[Any, ...], longer: tuple[Any, ...]) -> bool:
    bodies = [_body(db, row) for row in (shorter, longer)]
    compared = 0
    for ours, theirs in zip_longest(*bodies):
        if ours is None:
            break
        if theirs is None or ours.rstrip(b"\r\n") != theirs.rstrip(b"\r\n"):
            return False
        compared += 1
    return compared > 0


def _body(db: apsw.Connection, row: tuple[Any, ...]) -> Any:
    """The lines behind the session's header."""
    header_slot = orjson.loads(row[4])["header_slot"]
    lines = read_lines(db, row[0])
    for _ in range(0 if header_slot is None else header_slot + 1):
        next(lines, None)
    return lines
