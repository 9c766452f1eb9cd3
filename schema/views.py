"""The views other programs may rely on: readable by any SQLite tool, no function of ours inside. Meaning: SCHEMA.md."""

from __future__ import annotations

from typing import Final

SESSIONS: Final = """
CREATE VIEW sessions AS
SELECT pk, id, dialect, dialect_reason, version, cwd, title, first_message, parent_session, created_ms, modified_ms,
       message_count, entry_count, line_count, fault_count, byte_count, leaf_pk, grown_from, replaced_from,
       superseded, imported_ms, parent_pk
FROM session
WHERE staged_by IS NULL
"""

ENTRIES: Final = """
CREATE VIEW entries AS
SELECT pk, session_pk, entry_id, parent_id, parent_pk, depth, type, time_ms, role, provider, model, tool,
       stop_reason, input, output, cache_read, cache_write, cost
FROM entry
WHERE session_pk NOT IN (SELECT pk FROM session WHERE staged_by IS NOT NULL)
"""

FAULTS: Final = """
CREATE VIEW faults AS
SELECT session_pk, line, offset, kind, message
FROM fault
WHERE session_pk NOT IN (SELECT pk FROM session WHERE staged_by IS NOT NULL)
"""

SOURCES: Final = """
CREATE VIEW sources AS
SELECT CAST(path AS TEXT) AS path, session_pk, size, seen_ms, gone_ms
FROM source
"""

VIEWS: Final = {"sessions": SESSIONS, "entries": ENTRIES, "faults": FAULTS, "sources": SOURCES}

# Lines and entries carry their session in their keys. A foreign key would look each inserted entry's session up, and
# each deleted one's by an index; a range of keys is deleted at once.
DELETE_LINES: Final = """
CREATE TRIGGER session_deletes_its_lines AFTER DELETE ON session
BEGIN
  DELETE FROM line WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
  DELETE FROM entry WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
  DELETE FROM original WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
  DELETE FROM text_block WHERE first_pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
END
"""

DELETE_TEXTS: Final = """
CREATE TRIGGER text_block_deletes_its_texts AFTER DELETE ON text_block
BEGIN
  DELETE FROM entry_fts WHERE rowid BETWEEN old.pk << 6 AND (old.pk << 6) + 63;
  DELETE FROM result_fts WHERE rowid BETWEEN old.pk << 6 AND (old.pk << 6) + 63;
END
"""

INDEX_PROMPT: Final = """
CREATE TRIGGER history_is_indexed AFTER INSERT ON history
BEGIN
  INSERT INTO history_fts (rowid, prompt) VALUES (new.id, new.prompt);
END
"""

FORGET_PROMPT: Final = """
CREATE TRIGGER history_is_forgotten AFTER DELETE ON history
BEGIN
  INSERT INTO history_fts (history_fts, rowid, prompt) VALUES ('delete', old.id, old.prompt);
END
"""

CHANGE_PROMPT: Final = """
CREATE TRIGGER history_is_changed AFTER UPDATE ON history
BEGIN
  INSERT INTO history_fts (history_fts, rowid, prompt) VALUES ('delete', old.id, old.prompt);
  INSERT INTO history_fts (rowid, prompt) VALUES (new.id, new.prompt);
END
"""

TRIGGERS: Final = {
    "session_deletes_its_lines": DELETE_LINES,
    "text_block_deletes_its_texts": DELETE_TEXTS,
    "history_is_indexed": INDEX_PROMPT,
    "history_is_forgotten": FORGET_PROMPT,
    "history_is_changed": CHANGE_PROMPT,
}
