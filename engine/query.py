"""Runs one query of somebody else's on a connection that can do nothing but read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apsw

from sessiondb.errors import BadQueryError

READING: Final = frozenset(
    {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE, apsw.SQLITE_PRAGMA}
)

READING_PRAGMAS: Final = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
     "compile_options", "data_version", "function_list", "page_count", "page_size", "freelist_count", "user_version"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a query; `columns` has a name for each value, a repeated one with _2, _3 … behind."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def to_dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def run_query(db: apsw.Connection, query: str, params: Sequence[Any] | Mapping[str, Any]) -> Result:
    """The query's rows. `db` is for this one query: it is left unable to write.

    Raises BadQueryError for a query that SQLite refuses, that is not one statement, or that does more than read.
    """
    columns: list[str] = []
    statements: list[str] = []

    def begin(cursor: apsw.Cursor, sql: str, _bindings: Any) -> bool:
        statements.append(sql)
        columns.extend(_distinct([column[0] for column in cursor.description]))
        return len(statements) == 1

    cursor = db.cursor()
    cursor.exec_trace = begin
    db.authorizer = _only_reading
    try:
        rows = [tuple(row) for row in cursor.execute(query, params or None)]
    except apsw.AuthError as error:
        raise BadQueryError("the query would do more than read; only SELECT and the like are run here") from error
    except (apsw.SQLError, apsw.BindingsError, apsw.MismatchError, apsw.TooBigError) as error:
        raise BadQueryError(str(error)) from error
    except (apsw.ExecTraceAbort, apsw.IncompleteExecutionError) as error:
        raise BadQueryError("give one statement at a time") from error
    except UnicodeDecodeError as error:
        raise BadQueryError("a value is text that is no UTF-8; ask for it with CAST(… AS BLOB)") from error
    except (TypeError, UnicodeEncodeError) as error:
        raise BadQueryError(f"a parameter cannot be bound: {error}") from error
    if not columns:
        raise BadQueryError("there is no query in the text")
    return Result(columns, rows)


def _only_reading(action: int, first: str | None, second: str | None, _database: str | None, _view: str | None) -> int:
    allowed = action in READING
    if action == apsw.SQLITE_PRAGMA:
        allowed = first in READING_PRAGMAS
    elif action == apsw.SQLITE_FUNCTION:
        allowed = second != "load_extension"
    return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


def _distinct(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return distinct
