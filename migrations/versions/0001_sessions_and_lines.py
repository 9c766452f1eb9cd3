"""Sessions, their lines byte for byte, the entries found in them, and where they came from."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

STATEMENTS = (
    """
    CREATE TABLE session (
      pk INTEGER NOT NULL PRIMARY KEY,
      id TEXT NOT NULL,
      dialect TEXT NOT NULL,
      dialect_reason TEXT NOT NULL,
      version INTEGER NOT NULL,
      cwd TEXT,
      title TEXT,
      first_message TEXT,
      parent_session TEXT,
      created_ms INTEGER,
      modified_ms INTEGER,
      message_count INTEGER NOT NULL,
      entry_count INTEGER NOT NULL,
      line_count INTEGER NOT NULL,
      slot_count INTEGER NOT NULL,
      fault_count INTEGER NOT NULL,
      byte_count INTEGER NOT NULL,
      digest BLOB NOT NULL,
      imported_bytes INTEGER NOT NULL,
      id_hint TEXT NOT NULL,
      dialect_given TEXT,
      folder TEXT,
      fold TEXT NOT NULL,
      leaf_pk INTEGER,
      grown_from INTEGER,
      replaced_from INTEGER,
      superseded INTEGER NOT NULL DEFAULT 0,
      imported_ms INTEGER NOT NULL,
      staged_by TEXT,
      FOREIGN KEY (grown_from) REFERENCES session (pk) ON DELETE SET NULL,
      FOREIGN KEY (replaced_from) REFERENCES session (pk) ON DELETE SET NULL,
      CONSTRAINT superseded_is_a_flag CHECK (superseded IN (0, 1))
    ) STRICT
    """,
    "CREATE INDEX ix_session_id ON session (id)",
    "CREATE INDEX ix_session_digest ON session (digest)",
    "CREATE INDEX ix_session_grown_from ON session (grown_from) WHERE grown_from IS NOT NULL",
    "CREATE INDEX ix_session_replaced_from ON session (replaced_from) WHERE replaced_from IS NOT NULL",
    "CREATE INDEX ix_session_staged ON session (staged_by) WHERE staged_by IS NOT NULL",
    "CREATE TABLE line (pk INTEGER NOT NULL PRIMARY KEY, raw ANY NOT NULL) STRICT",
    """
    CREATE TABLE entry (
      pk INTEGER NOT NULL PRIMARY KEY,
      session_pk INTEGER NOT NULL,
      entry_id TEXT,
      parent_id TEXT,
      parent_pk INTEGER,
      depth INTEGER NOT NULL,
      type TEXT,
      time_ms INTEGER,
      role TEXT,
      provider TEXT,
      model TEXT,
      tool TEXT,
      stop_reason TEXT,
      input INTEGER,
      output INTEGER,
      cache_read INTEGER,
      cache_write INTEGER,
      cost REAL
    ) STRICT
    """,
    "CREATE INDEX ix_entry_session_entry_id ON entry (session_pk, entry_id)",
    """
    CREATE TABLE fault (
      pk INTEGER NOT NULL PRIMARY KEY,
      session_pk INTEGER NOT NULL,
      line INTEGER NOT NULL,
      offset INTEGER NOT NULL,
      kind TEXT NOT NULL,
      message TEXT NOT NULL,
      FOREIGN KEY (session_pk) REFERENCES session (pk) ON DELETE CASCADE
    ) STRICT
    """,
    "CREATE INDEX ix_fault_session_pk ON fault (session_pk, line)",
    """
    CREATE TABLE source (
      path ANY NOT NULL PRIMARY KEY,
      session_pk INTEGER NOT NULL,
      size INTEGER NOT NULL,
      mtime_ns INTEGER NOT NULL,
      ctime_ns INTEGER NOT NULL,
      seen_ms INTEGER NOT NULL,
      gone_ms INTEGER,
      FOREIGN KEY (session_pk) REFERENCES session (pk) ON DELETE CASCADE
    ) STRICT
    """,
    "CREATE INDEX ix_source_session_pk ON source (session_pk)",
    "CREATE TABLE root (path ANY NOT NULL PRIMARY KEY, dialect_given TEXT, added_ms INTEGER NOT NULL) STRICT",
    """
    CREATE TABLE blob (
      pk INTEGER NOT NULL PRIMARY KEY,
      hash TEXT NOT NULL UNIQUE,
      bytes BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE blob_reference (
      session_pk INTEGER NOT NULL,
      hash TEXT NOT NULL,
      PRIMARY KEY (session_pk, hash),
      FOREIGN KEY (session_pk) REFERENCES session (pk) ON DELETE CASCADE
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE TABLE state (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    "INSERT INTO state (name, value) VALUES ('next session', 1)",
    """
    CREATE TRIGGER session_deletes_its_lines AFTER DELETE ON session
    BEGIN
      DELETE FROM line WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
      DELETE FROM entry WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
    END
    """,
    """
    CREATE VIEW sessions AS
    SELECT pk, id, dialect, dialect_reason, version, cwd, title, first_message, parent_session, created_ms, modified_ms,
           message_count, entry_count, line_count, fault_count, byte_count, leaf_pk, grown_from, replaced_from,
           superseded, imported_ms
    FROM session
    WHERE staged_by IS NULL
    """,
    """
    CREATE VIEW entries AS
    SELECT pk, session_pk, entry_id, parent_id, parent_pk, depth, type, time_ms, role, provider, model, tool,
           stop_reason, input, output, cache_read, cache_write, cost
    FROM entry
    WHERE session_pk NOT IN (SELECT pk FROM session WHERE staged_by IS NOT NULL)
    """,
    """
    CREATE VIEW faults AS
    SELECT session_pk, line, offset, kind, message
    FROM fault
    WHERE session_pk NOT IN (SELECT pk FROM session WHERE staged_by IS NOT NULL)
    """,
    """
    CREATE VIEW sources AS
    SELECT CAST(path AS TEXT) AS path, session_pk, size, seen_ms, gone_ms
    FROM source
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
