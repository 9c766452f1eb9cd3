"""SQLAlchemy's SQLite dialect over apsw, registered as the entry point behind `sqlite+apsw://`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import apsw
from sqlalchemy import util
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from . import dbapi

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import (
        ConnectArgsType,
        DBAPIConnection,
        DBAPICursor,
        DBAPIModule,
        IsolationLevel,
    )
    from sqlalchemy.pool import PoolProxiedConnection

_BEGIN_KINDS = ("DEFERRED", "IMMEDIATE", "EXCLUSIVE")


class ApswDialect(SQLiteDialect_pysqlite):
    """SQLite through `sessiondb.dbapi`.

    Every transaction that SQLAlchemy begins is a real one from its first statement, a SELECT or DDL included. Therefore
    what SQLite refuses inside a transaction (VACUUM, DETACH, PRAGMA foreign_keys, journal_mode) needs AUTOCOMMIT.

    The kinds of BEGIN are isolation levels, beside SERIALIZABLE (a plain BEGIN), READ UNCOMMITTED and AUTOCOMMIT: as
    `create_engine(url, isolation_level="IMMEDIATE")`, as an execution option, as `?isolation_level=IMMEDIATE` in the
    URL, or set on a connection given by `creator=`. The pool puts a changed level back.

    The base class is chosen for its URLs, pools and types. It loads the standard library's driver only in
    `import_dbapi`, which is replaced here.
    """

    driver = "apsw"
    supports_statement_cache = True  # SQLAlchemy does not inherit it: each class has to say so

    @classmethod
    def import_dbapi(cls) -> DBAPIModule:
        """The module `sessiondb.dbapi`."""
        return cast("DBAPIModule", dbapi)

    def retrieve_dbapi_version(self, dbapi: DBAPIModule) -> util.VersionInfo:
        """apsw's version, where the base class gives Python's."""
        return util.VersionInfo(tuple(int(part) for part in apsw.apsw_version().split(".")))

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """What `dbapi.connect` is called with."""
        arguments, options = super().create_connect_args(url)
        # The base class always adds it. apsw connections may move between threads, so there is nothing to check.
        options.pop("check_same_thread", None)
        # The base class loses the one option that is text (SQLAlchemy 2.1.9).
        if "isolation_level" in url.query:
            options["isolation_level"] = url.query["isolation_level"]
        return arguments, options

    def on_connect(self) -> Callable[[DBAPIConnection], None]:
        """Gives each new connection REGEXP.

        The base class also replaces floor(), which apsw's SQLite has built in, by one that fails on NULL.
        """

        def add_regexp(connection: DBAPIConnection) -> None:
            connection.create_function("regexp", 2, _regexp, deterministic=True)

        return add_regexp

    def get_isolation_level_values(self, dbapi_connection: DBAPIConnection) -> list[IsolationLevel]:
        """The levels of the base class and the kinds of BEGIN."""
        inherited = super().get_isolation_level_values(dbapi_connection)  # type: ignore[no-untyped-call]  # SQLAlchemy's
        return [*inherited, *_BEGIN_KINDS]

    def set_isolation_level(self, dbapi_connection: DBAPIConnection, level: IsolationLevel) -> None:
        """Counts from the next transaction."""
        if level in _BEGIN_KINDS:
            super().set_isolation_level(dbapi_connection, "SERIALIZABLE")  # takes READ UNCOMMITTED back
            dbapi_connection.isolation_level = level
        else:
            super().set_isolation_level(dbapi_connection, level)

    def get_isolation_level(self, dbapi_connection: DBAPIConnection) -> IsolationLevel:
        """The kind of BEGIN if one is set, else what the base class finds."""
        level = dbapi_connection.isolation_level
        if level not in _BEGIN_KINDS:
            level = super().get_isolation_level(dbapi_connection)  # type: ignore[no-untyped-call]  # SQLAlchemy's
        return cast("IsolationLevel", level)

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Emits BEGIN, where the base class leaves it to the driver."""
        dbapi_connection.begin()

    def is_disconnect(
        self,
        e: DBAPIModule.Error,
        connection: PoolProxiedConnection | DBAPIConnection | None,
        cursor: DBAPICursor | None,
    ) -> bool:
        """Whether the connection was closed under SQLAlchemy, so that the pool replaces it."""
        return isinstance(e.__cause__, apsw.ConnectionClosedError)


def _regexp(pattern: str | None, text: str | None) -> bool | None:
    return None if pattern is None or text is None else re.search(pattern, text) is not None
