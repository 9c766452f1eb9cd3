"""The tables as SQLAlchemy metadata. What each means: SCHEMA.md. The revisions that build them: migrations/versions.

Tables are singular and private: their columns may change with any revision. The plural views (views.py) are the
contract with other programs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    REAL,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import UserDefinedType


class AnyType(UserDefinedType[Any]):
    """SQLite's ANY: the value keeps the type it was bound with. Text where the bytes are UTF-8, else a blob."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "ANY"


metadata = MetaData()


def _session_key(name: str = "session_pk", **options: Any) -> Column[int]:
    return Column(name, Integer, ForeignKey("session.pk", ondelete="CASCADE"), **options)


session = Table(
    "session",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("dialect", Text, nullable=False),
    Column("dialect_reason", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("cwd", Text),
    Column("title", Text),
    Column("first_message", Text),
    Column("parent_session", Text),
    Column("created_ms", Integer),
    Column("modified_ms", Integer),
    Column("message_count", Integer, nullable=False),
    Column("entry_count", Integer, nullable=False),
    Column("line_count", Integer, nullable=False),
    Column("slot_count", Integer, nullable=False),
    Column("fault_count", Integer, nullable=False),
    Column("byte_count", Integer, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("imported_bytes", Integer, nullable=False),
    Column("id_hint", Text, nullable=False),
    Column("dialect_given", Text),
    Column("folder", Text),
    Column("fold", Text, nullable=False),
    Column("leaf_pk", Integer),
    Column("grown_from", Integer, ForeignKey("session.pk", ondelete="SET NULL")),
    Column("replaced_from", Integer, ForeignKey("session.pk", ondelete="SET NULL")),
    Column("superseded", Integer, nullable=False, server_default=text("0")),
    Column("imported_ms", Integer, nullable=False),
    Column("staged_by", Text),
    Column("pointer_pk", Integer),
    Column("original_slots", Integer),
    Column("rewrites", Integer, nullable=False, server_default=text("0")),
    Column("parent_pk", Integer, ForeignKey("session.pk", ondelete="SET NULL")),
    CheckConstraint("superseded IN (0, 1)", name="superseded_is_a_flag"),
    sqlite_strict=True,
)
Index("ix_session_id", session.c.id)
Index("ix_session_digest", session.c.digest)
Index("ix_session_grown_from", session.c.grown_from, sqlite_where=session.c.grown_from.is_not(None))
Index("ix_session_replaced_from", session.c.replaced_from, sqlite_where=session.c.replaced_from.is_not(None))
Index("ix_session_staged", session.c.staged_by, sqlite_where=session.c.staged_by.is_not(None))
Index("ix_session_parent_session", session.c.parent_session, sqlite_where=session.c.parent_session.is_not(None))
Index("ix_session_parent_pk", session.c.parent_pk, sqlite_where=session.c.parent_pk.is_not(None))

line = Table(
    "line",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("raw", AnyType, nullable=False),
    sqlite_strict=True,
)

original = Table(
    "original",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("raw", AnyType, nullable=False),
    sqlite_strict=True,
)

entry = Table(
    "entry",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("session_pk", Integer, nullable=False),  # no foreign key: it is in the key already, see S8
    Column("entry_id", Text),
    Column("parent_id", Text),
    Column("parent_pk", Integer),
    Column("depth", Integer, nullable=False),
    Column("type", Text),
    Column("time_ms", Integer),
    Column("role", Text),
    Column("provider", Text),
    Column("model", Text),
    Column("tool", Text),
    Column("stop_reason", Text),
    Column("input", Integer),
    Column("output", Integer),
    Column("cache_read", Integer),
    Column("cache_write", Integer),
    Column("cost", REAL),
    Column("state_pk", Integer),
    sqlite_strict=True,
)
Index("ix_entry_session_entry_id", entry.c.session_pk, entry.c.entry_id)
Index(
    "ix_entry_not_message", entry.c.pk, entry.c.type, entry.c.state_pk, entry.c.depth,
    sqlite_where=entry.c.type != "message",
)  # fmt: skip

fault = Table(
    "fault",
    metadata,
    Column("pk", Integer, primary_key=True),
    _session_key(nullable=False),
    Column("line", Integer, nullable=False),
    Column("offset", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    sqlite_strict=True,
)
Index("ix_fault_session_pk", fault.c.session_pk, fault.c.line)

source = Table(
    "source",
    metadata,
    Column("path", AnyType, primary_key=True, nullable=False),
    _session_key(nullable=False),
    Column("size", Integer, nullable=False),
    Column("mtime_ns", Integer, nullable=False),
    Column("ctime_ns", Integer, nullable=False),
    Column("seen_ms", Integer, nullable=False),
    Column("gone_ms", Integer),
    sqlite_strict=True,
)
Index("ix_source_session_pk", source.c.session_pk)

root = Table(
    "root",
    metadata,
    Column("path", AnyType, primary_key=True, nullable=False),
    Column("dialect_given", Text),
    Column("added_ms", Integer, nullable=False),
    sqlite_strict=True,
)

blob = Table(
    "blob",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("bytes", LargeBinary, nullable=False),
    sqlite_strict=True,
)

blob_reference = Table(
    "blob_reference",
    metadata,
    _session_key(primary_key=True, nullable=False),
    Column("hash", Text, primary_key=True, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

text_block = Table(
    "text_block",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("first_pk", Integer, nullable=False, unique=True),
    sqlite_strict=True,
)

history = Table(  # exactly the columns of the agents' history.db
    "history",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("prompt", Text, nullable=False),
    Column("created_at", Integer, nullable=False),
    Column("cwd", Text),
)
Index("ix_history_created_at", history.c.created_at, history.c.id)

history_scope = Table(
    "history_scope",
    metadata,
    Column("history_id", Integer, ForeignKey("history.id", ondelete="CASCADE"), primary_key=True),
    Column("session_id", Text, nullable=False),
    sqlite_strict=True,
)
Index("ix_history_scope_session_id", history_scope.c.session_id)

state = Table(
    "state",
    metadata,
    Column("name", Text, primary_key=True, nullable=False),
    Column("value", Integer, nullable=False),
    sqlite_strict=True,
)
