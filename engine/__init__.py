"""Sessions of coding agents in one SQLite database, in and out as JSONL byte for byte."""

from sessiondb.errors import SessionDBError
from sessiondb.jsonl import UNSET
from sessiondb.report import ImportReport
from sessiondb.sessions import SessionInfo
from sessiondb.store import Store

__all__ = ["UNSET", "ImportReport", "SessionDBError", "SessionInfo", "Store"]
