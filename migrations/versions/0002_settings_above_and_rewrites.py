"""Where a context's settings stand, where the leaf pointer was left, which session another came from, and the imported
bytes of sessions that were rewritten."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Connection

revision = "0002"
down_revision = "0001"

STATEMENTS = (
    "ALTER TABLE entry ADD COLUMN state_pk INTEGER",
    "CREATE INDEX ix_entry_not_message ON entry (pk, type, state_pk, depth) WHERE type != 'message'",
    "ALTER TABLE session ADD COLUMN pointer_pk INTEGER",
    "ALTER TABLE session ADD COLUMN original_slots INTEGER",
    "ALTER TABLE session ADD COLUMN rewrites INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE session ADD COLUMN parent_pk INTEGER REFERENCES session (pk) ON DELETE SET NULL",
    "CREATE INDEX ix_session_parent_session ON session (parent_session) WHERE parent_session IS NOT NULL",
    "CREATE INDEX ix_session_parent_pk ON session (parent_pk) WHERE parent_pk IS NOT NULL",
    "CREATE TABLE original (pk INTEGER NOT NULL PRIMARY KEY, raw ANY NOT NULL) STRICT",
    "DROP TRIGGER session_deletes_its_lines",
    """
    CREATE TRIGGER session_deletes_its_lines AFTER DELETE ON session
    BEGIN
      DELETE FROM line WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
      DELETE FROM entry WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
      DELETE FROM original WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
    END
    """,
    "DROP VIEW sessions",
    """
    CREATE VIEW sessions AS
    SELECT pk, id, dialect, dialect_reason, version, cwd, title, first_message, parent_session, created_ms, modified_ms,
           message_count, entry_count, line_count, fault_count, byte_count, leaf_pk, grown_from, replaced_from,
           superseded, imported_ms, parent_pk
    FROM session
    WHERE staged_by IS NULL
    """,
    # one session of that id or path that is not superseded; + keeps the index on path, whose values have any type
    """
    UPDATE session SET parent_pk = (
      SELECT max(p.pk) FROM (
        SELECT i.pk FROM session i
        WHERE i.id = session.parent_session AND i.superseded = 0 AND i.staged_by IS NULL
        UNION
        SELECT s.pk FROM source o CROSS JOIN session s ON s.pk = o.session_pk
        WHERE o.path = +session.parent_session AND s.superseded = 0 AND s.staged_by IS NULL
      ) p
      WHERE p.pk <> session.pk
      HAVING count(*) = 1
    )
    WHERE parent_session IS NOT NULL AND staged_by IS NULL
    """,
)

SETTINGS = (
    "thinking_level_change", "model_change", "service_tier_change", "mode_change", "context_change", "ttsr_injection",
    "mcp_tool_selection",
)  # fmt: skip

SELECT_SESSIONS = "SELECT pk FROM session ORDER BY pk"
SELECT_LINKS = "SELECT pk, parent_pk, type FROM entry WHERE pk BETWEEN ? AND ? ORDER BY depth, pk"
UPDATE_STATE = "UPDATE entry SET state_pk = ? WHERE pk = ?"


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
    connection = op.get_bind()
    for (session_pk,) in connection.exec_driver_sql(SELECT_SESSIONS).fetchall():
        _fill_states(connection, session_pk << 32)


def _fill_states(connection: Connection, first: int) -> None:
    """Give each settings entry and compaction of a session the key of the nearest settings entry above it."""
    nearest: dict[int | None, int | None] = {None: None}  # at or above an entry; parents come first
    states = []
    for pk, parent_pk, kind in connection.exec_driver_sql(SELECT_LINKS, (first, first + 4294967295)):
        above = nearest[parent_pk]
        is_settings = kind in SETTINGS
        nearest[pk] = pk if is_settings else above
        if above is not None and (is_settings or kind == "compaction"):
            states.append((above, pk))
    if states:
        connection.exec_driver_sql(UPDATE_STATE, states)
