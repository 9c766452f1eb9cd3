"""Sessions of coding agents in one SQLite database, in and out as JSONL byte for byte."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sessiondb.blobs import BlobStore
    from sessiondb.context import build_session_context
    from sessiondb.errors import (
        AmbiguousSessionError,
        EntryNotFoundError,
        ForkEntryError,
        MissingSessionCwdError,
        NotSupportedError,
        ReplacementInProgressError,
        RuntimeDisposedError,
        SessionDBError,
        SessionDBWarning,
        SessionForkError,
        SessionImportError,
        SessionImportFileNotFoundError,
        SessionNotFoundError,
        SessionReplacementError,
        SessionWriteConflictError,
        SessionWriteError,
    )
    from sessiondb.file_storage import FileSessionStorage
    from sessiondb.history import HistoryStorage
    from sessiondb.jsonl import UNSET
    from sessiondb.manager import SessionManager
    from sessiondb.memory_storage import MemorySessionStorage
    from sessiondb.recent_files import find_most_recent_session, get_recent_sessions
    from sessiondb.report import ImportReport
    from sessiondb.runtime import AgentSessionRuntime, create_agent_session_runtime
    from sessiondb.session_files import load_entries_from_file
    from sessiondb.sessions import SessionInfo
    from sessiondb.storage import SessionStorage
    from sessiondb.store import Store
    from sessiondb.to_llm import convert_to_llm

# Loaded when first asked for: a command that lists sessions needs no session manager, and starts sooner without.
_HOMES = {
    "AgentSessionRuntime": "sessiondb.runtime",
    "AmbiguousSessionError": "sessiondb.errors",
    "BlobStore": "sessiondb.blobs",
    "EntryNotFoundError": "sessiondb.errors",
    "FileSessionStorage": "sessiondb.file_storage",
    "ForkEntryError": "sessiondb.errors",
    "HistoryStorage": "sessiondb.history",
    "ImportReport": "sessiondb.report",
    "MemorySessionStorage": "sessiondb.memory_storage",
    "MissingSessionCwdError": "sessiondb.errors",
    "NotSupportedError": "sessiondb.errors",
    "ReplacementInProgressError": "sessiondb.errors",
    "RuntimeDisposedError": "sessiondb.errors",
    "SessionDBError": "sessiondb.errors",
    "SessionDBWarning": "sessiondb.errors",
    "SessionForkError": "sessiondb.errors",
    "SessionImportError": "sessiondb.errors",
    "SessionImportFileNotFoundError": "sessiondb.errors",
    "SessionInfo": "sessiondb.sessions",
    "SessionManager": "sessiondb.manager",
    "SessionNotFoundError": "sessiondb.errors",
    "SessionReplacementError": "sessiondb.errors",
    "SessionStorage": "sessiondb.storage",
    "SessionWriteConflictError": "sessiondb.errors",
    "SessionWriteError": "sessiondb.errors",
    "Store": "sessiondb.store",
    "UNSET": "sessiondb.jsonl",
    "build_session_context": "sessiondb.context",
    "convert_to_llm": "sessiondb.to_llm",
    "create_agent_session_runtime": "sessiondb.runtime",
    "find_most_recent_session": "sessiondb.recent_files",
    "get_recent_sessions": "sessiondb.recent_files",
    "load_entries_from_file": "sessiondb.session_files",
}

__all__ = [
    "UNSET",
    "AgentSessionRuntime",
    "AmbiguousSessionError",
    "BlobStore",
    "EntryNotFoundError",
    "FileSessionStorage",
    "ForkEntryError",
    "HistoryStorage",
    "ImportReport",
    "MemorySessionStorage",
    "MissingSessionCwdError",
    "NotSupportedError",
    "ReplacementInProgressError",
    "RuntimeDisposedError",
    "SessionDBError",
    "SessionDBWarning",
    "SessionForkError",
    "SessionImportError",
    "SessionImportFileNotFoundError",
    "SessionInfo",
    "SessionManager",
    "SessionNotFoundError",
    "SessionReplacementError",
    "SessionStorage",
    "SessionWriteConflictError",
    "SessionWriteError",
    "Store",
    "build_session_context",
    "convert_to_llm",
    "create_agent_session_runtime",
    "find_most_recent_session",
    "get_recent_sessions",
    "load_entries_from_file",
]


def __getattr__(name: str) -> Any:
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except KeyError:
        raise AttributeError(f"module 'sessiondb' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
