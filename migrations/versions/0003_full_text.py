"""The full-text index of entries, and the prompt history with its own.

What stands in the former comes from the lines, so it is filled by sessiondb, not here.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

STATEMENTS = (
    """
    CREATE VIRTUAL TABLE entry_fts USING fts5(
      call, text, thinking, summary, custom, bash, label, name, other,
      content = '', contentless_delete = 1,
      tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co S* M*' tokenchars '\u166d'"
    )
    """,
    """
    CREATE VIRTUAL TABLE result_fts USING fts5(
      result,
      content = '', contentless_delete = 1,
      tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co S* M*' tokenchars '\u166d'"
    )
    """,
    "CREATE TABLE text_block (pk INTEGER NOT NULL PRIMARY KEY, first_pk INTEGER NOT NULL UNIQUE) STRICT",
    """
    CREATE TRIGGER text_block_deletes_its_texts AFTER DELETE ON text_block
    BEGIN
      DELETE FROM entry_fts WHERE rowid BETWEEN old.pk << 6 AND (old.pk << 6) + 63;
      DELETE FROM result_fts WHERE rowid BETWEEN old.pk << 6 AND (old.pk << 6) + 63;
    END
    """,
    "INSERT INTO entry_fts (entry_fts, rank) VALUES ('hashsize', 33554432)",
    "INSERT INTO entry_fts (entry_fts, rank) VALUES ('automerge', 8)",
    "INSERT INTO entry_fts (entry_fts, rank) VALUES ('crisismerge', 1000)",
    "INSERT INTO result_fts (result_fts, rank) VALUES ('hashsize', 33554432)",
    "INSERT INTO result_fts (result_fts, rank) VALUES ('automerge', 8)",
    "INSERT INTO result_fts (result_fts, rank) VALUES ('crisismerge', 1000)",
    """
    CREATE TABLE history (
      id INTEGER NOT NULL PRIMARY KEY, prompt TEXT NOT NULL, created_at INTEGER NOT NULL, cwd TEXT
    )
    """,
    "CREATE INDEX ix_history_created_at ON history (created_at, id)",
    """
    CREATE TABLE history_scope (
      history_id INTEGER NOT NULL PRIMARY KEY, session_id TEXT NOT NULL,
      FOREIGN KEY (history_id) REFERENCES history (id) ON DELETE CASCADE
    ) STRICT
    """,
    "CREATE INDEX ix_history_scope_session_id ON history_scope (session_id)",
    "CREATE VIRTUAL TABLE history_fts USING fts5(prompt, content = 'history', content_rowid = 'id')",
    """
    CREATE TRIGGER history_is_indexed AFTER INSERT ON history
    BEGIN
      INSERT INTO history_fts (rowid, prompt) VALUES (new.id, new.prompt);
    END
    """,
    """
    CREATE TRIGGER history_is_forgotten AFTER DELETE ON history
    BEGIN
      INSERT INTO history_fts (history_fts, rowid, prompt) VALUES ('delete', old.id, old.prompt);
    END
    """,
    """
    CREATE TRIGGER history_is_changed AFTER UPDATE ON history
    BEGIN
      INSERT INTO history_fts (history_fts, rowid, prompt) VALUES ('delete', old.id, old.prompt);
      INSERT INTO history_fts (rowid, prompt) VALUES (new.id, new.prompt);
    END
    """,
    "DROP TRIGGER session_deletes_its_lines",
    """
    CREATE TRIGGER session_deletes_its_lines AFTER DELETE ON session
    BEGIN
      DELETE FROM line WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
      DELETE FROM entry WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
      DELETE FROM original WHERE pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
      DELETE FROM text_block WHERE first_pk BETWEEN old.pk << 32 AND (old.pk << 32) + 4294967295;
    END
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
