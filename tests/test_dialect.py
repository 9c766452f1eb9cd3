"""The promise: SQLAlchemy and alembic work through apsw alone, and every transaction they open is a real one."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
import sqlalchemy
from sqlalchemy import exc, text

from sessiondb import dbapi
from sessiondb.dialect import ApswDialect

SUITE = Path(__file__).parent / "dialect_suite"
ONE_TO_NINE = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT i FROM n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "some.db")


@pytest.fixture
def connection() -> Iterator[dbapi.Connection]:
    with closing(dbapi.connect(":memory:")) as connection:
        yield connection


@pytest.fixture
def engine(path: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite+apsw:///{path}")
    yield engine
    engine.dispose()


def _tables(engine: sqlalchemy.Engine) -> list[str]:
    return sqlalchemy.inspect(engine).get_table_names()


# --- PEP 249 ----------------------------------------------------------------------------------------------------------


def test_module_has_what_pep_249_asks_for() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "qmark")
    times = {"Date", "Time", "Timestamp", "DateFromTicks", "TimeFromTicks", "TimestampFromTicks"}
    types = {"Binary", "STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"}
    errors = {"Warning", "Error", "InterfaceError", "DatabaseError"}  # the others: next test
    assert {"connect"} | times | types | errors <= vars(dbapi).keys()


def test_error_classes_are_related_as_pep_249_says() -> None:
    assert not issubclass(dbapi.Warning, dbapi.Error)
    assert not issubclass(dbapi.InterfaceError, dbapi.DatabaseError)
    assert {kind.__name__ for kind in dbapi.DatabaseError.__subclasses__()} == {
        "DataError",
        "OperationalError",
        "IntegrityError",
        "InternalError",
        "ProgrammingError",
        "NotSupportedError",
    }


def test_ticks_give_local_times() -> None:
    now = datetime.datetime(2024, 2, 29, 13, 14, 15)  # PEP 249 speaks of local time
    ticks = now.timestamp()
    assert dbapi.DateFromTicks(ticks) == now.date()
    assert dbapi.TimeFromTicks(ticks) == now.time()
    assert dbapi.TimestampFromTicks(ticks) == now


def test_type_objects_equal_the_declared_types_of_their_kind(connection: dbapi.Connection) -> None:
    connection.execute("CREATE TABLE t (a INTEGER, b VARCHAR(20), c BLOB, d DATETIME, e)")
    description = connection.execute("SELECT a, b, c, d, e FROM t").description
    assert description is not None
    declared = [column[1] for column in description]
    kinds = [dbapi.NUMBER, dbapi.STRING, dbapi.BINARY, dbapi.DATETIME, None]
    assert [[kind == name for name in declared] for kind in kinds[:4]] == [
        [row == column for column in range(5)] for row in range(4)
    ]


def test_rows_are_fetched_one_many_and_all(connection: dbapi.Connection) -> None:
    cursor = connection.execute(ONE_TO_NINE)
    assert cursor.fetchone() == (1,)
    assert cursor.fetchmany() == [(2,)]
    assert cursor.fetchmany(2) == [(3,), (4,)]
    assert cursor.fetchmany(0) == []
    assert next(iter(cursor)) == (5,)
    assert cursor.fetchall() == [(6,), (7,), (8,), (9,)]
    assert (cursor.fetchone(), cursor.fetchmany(3), cursor.fetchall()) == (None, [], [])
    assert cursor.rowcount == -1


def test_an_empty_result_is_described(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT 1 AS a, 'x' AS b WHERE 0")
    assert cursor.description is not None
    assert [column[0] for column in cursor.description] == ["a", "b"]
    assert {len(column) for column in cursor.description} == {7}


def test_a_cursor_is_used_again_before_its_result_was_read(connection: dbapi.Connection) -> None:
    cursor = connection.execute(ONE_TO_NINE)
    cursor.fetchone()
    assert cursor.execute("SELECT 7").fetchall() == [(7,)]
    cursor.execute("CREATE TABLE t (a)")
    assert cursor.description is None
    with pytest.raises(dbapi.ProgrammingError):
        cursor.fetchall()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime.datetime(2024, 2, 29, 1, 2, 3, 45), "2024-02-29 01:02:03.000045"),
        (datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC), "2024-02-29 00:00:00+00:00"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.time(1, 2, 3), "01:02:03"),
        (b"\x00\xff", b"\x00\xff"),
        (dbapi.Binary(b"ab"), b"ab"),
        (True, 1),
        (2**63 - 1, 2**63 - 1),
        (None, None),
        ("a\x00b", "a\x00b"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_stored(connection: dbapi.Connection, value: object, stored: object) -> None:
    assert connection.execute("SELECT ?", (value,)).fetchall() == [(stored,)]
    assert connection.execute("SELECT :a", {"a": value}).fetchall() == [(stored,)]


@pytest.mark.parametrize(
    ("operation", "parameters", "error"),
    [
        ("SELECT ?", (object(),), dbapi.ProgrammingError),
        ("SELECT ?", (), dbapi.ProgrammingError),
        ("SELECT ?", (1, 2), dbapi.ProgrammingError),
        ("SELECT :a", {}, KeyError),
        ("SELECT ?", (2**63,), OverflowError),
        ("SELECT ?", ("\ud800",), UnicodeEncodeError),
    ],
    ids=["object", "too few", "too many", "no such name", "65 bits", "surrogate"],
)
def test_values_that_cannot_be_stored_are_refused(
    connection: dbapi.Connection, operation: str, parameters: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        connection.execute(operation, parameters)


@pytest.mark.parametrize(
    "operation",
    [
        "INSERT INTO t VALUES (1); SELECT 1",
        "INSERT INTO t VALUES (1); /* ; */ x",
        "INSERT INTO t VALUES (1);-- a\nDROP TABLE t",
    ],
)
def test_a_second_statement_is_refused_before_the_first_runs(connection: dbapi.Connection, operation: str) -> None:
    connection.execute("CREATE TABLE t (a)")
    with pytest.raises(dbapi.ProgrammingError, match="only one statement"):
        connection.execute(operation)
    with pytest.raises(dbapi.ProgrammingError, match="only one statement"):
        connection.cursor().executemany(operation, [()])
    assert connection.execute("SELECT * FROM t").fetchall() == []


@pytest.mark.parametrize(
    "operation",
    [
        "SELECT 1;",
        "SELECT 1 ; ; -- end",
        "SELECT 1;" + "--- -- " * 5000,
        "-- a; b\n/* c; d */ SELECT 1; /* open",
        "SELECT 1;\n\n",
        "SELECT 1; /* a */ -- b\n;",
    ],
)
def test_comments_and_semicolons_are_no_second_statement(connection: dbapi.Connection, operation: str) -> None:
    assert connection.execute(operation).fetchall() == [(1,)]


@pytest.mark.parametrize("operation", ["", "  ", "-- nothing", ";"])
def test_a_string_without_a_statement_does_nothing(connection: dbapi.Connection, operation: str) -> None:
    assert connection.execute(operation).description is None


def test_rowcount_is_what_the_statement_changed(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)").rowcount == -1
    assert cursor.execute("INSERT INTO t (b) VALUES (1), (2), (3)").rowcount == 3
    assert cursor.lastrowid == 3
    updated = cursor.execute("/* a */ -- b\n update t SET b = 0 WHERE a < 3")
    assert (updated.rowcount, updated.lastrowid) == (2, None)
    assert cursor.execute("UPDATE t SET b = 0 WHERE a > 99").rowcount == 0
    assert cursor.execute("WITH x AS (SELECT 1 AS a) DELETE FROM t WHERE a IN x").rowcount == 1
    assert cursor.execute("WITH x AS (SELECT 1 AS a) SELECT * FROM x").rowcount == -1
    assert cursor.execute("REPLACE INTO t VALUES (2, 5)").rowcount == 1
    assert cursor.execute("CREATE TABLE u AS SELECT * FROM t").rowcount == -1
    assert cursor.execute("PRAGMA user_version = 3").rowcount == -1


@pytest.fixture
def counting_trigger(connection: dbapi.Connection) -> None:
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    connection.execute("CREATE TABLE log (a)")
    connection.execute(
        "CREATE TRIGGER t_changed AFTER UPDATE ON t BEGIN INSERT INTO log VALUES (1); INSERT INTO log VALUES (2); END"
    )


@pytest.mark.usefixtures("counting_trigger")
def test_rowcount_of_executemany_leaves_out_what_triggers_change(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.executemany("INSERT INTO t VALUES (?, ?)", ((i, i) for i in range(10))).rowcount == 10
    assert (
        cursor.executemany("UPDATE t SET b = 0 WHERE a >= :from", [{"from": 8}, {"from": 99}, {"from": 5}]).rowcount
        == 7
    )
    assert connection.execute("SELECT count(*) FROM log").fetchone() == (14,)
    assert cursor.execute("UPDATE t SET b = 1 WHERE a < 2").rowcount == 2
    assert cursor.executemany("DELETE FROM t", []).rowcount == -1


def test_executemany_keeps_the_items_before_the_failing_one(connection: dbapi.Connection) -> None:
    connection.execute("CREATE TABLE t (a UNIQUE)")
    with pytest.raises(dbapi.IntegrityError):
        connection.cursor().executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (1,), (3,)])
    assert connection.execute("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("operation", ["SELECT ?", "INSERT INTO t VALUES (?) RETURNING a"])
def test_executemany_refuses_a_statement_that_returns_rows(connection: dbapi.Connection, operation: str) -> None:
    connection.execute("CREATE TABLE t (a)")
    with pytest.raises(dbapi.ProgrammingError, match="returns rows"):
        connection.cursor().executemany(operation, [(1,), (2,)])
    assert connection.execute("SELECT * FROM t").fetchall() == []


def test_a_write_with_returning_is_done_when_execute_returns(connection: dbapi.Connection) -> None:
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    cursor = connection.execute("INSERT INTO t (b) VALUES (5), (6), (7) RETURNING a, b")
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (3,)
    assert (cursor.rowcount, cursor.lastrowid) == (3, 3)
    assert cursor.fetchall() == [(1, 5), (2, 6), (3, 7)]


def test_an_unclosed_cursor_goes_without_the_cyclic_garbage_collector(connection: dbapi.Connection) -> None:
    cursor = connection.execute(ONE_TO_NINE)
    cursor.fetchone()
    gone = weakref.ref(cursor)
    del cursor
    assert gone() is None


def test_a_connection_may_move_to_another_thread(connection: dbapi.Connection) -> None:
    with ThreadPoolExecutor(1) as other:
        other.submit(connection.execute, "CREATE TABLE t (a)").result()
    assert connection.execute("SELECT * FROM t").fetchall() == []


def test_a_python_function_can_be_called_from_sql(connection: dbapi.Connection) -> None:
    connection.create_function("twice", 1, lambda value: value * 2, deterministic=True)
    connection.execute("CREATE TABLE t (a, b AS (twice(a)))")  # SQLite takes only a deterministic function here
    connection.execute("INSERT INTO t VALUES (21)")
    assert connection.execute("SELECT b FROM t").fetchone() == (42,)


def test_an_exception_in_a_python_function_arrives_as_it_is(connection: dbapi.Connection) -> None:
    connection.create_function("bad", 0, lambda: [][0])
    with pytest.raises(IndexError):
        connection.execute("SELECT bad()")
    assert connection.execute("SELECT 1").fetchone() == (1,)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "error", "code"),
    [
        ("INSERT INTO t VALUES (1, 1)", dbapi.IntegrityError, apsw.SQLITE_CONSTRAINT_PRIMARYKEY),
        ("INSERT INTO t VALUES (2, NULL)", dbapi.IntegrityError, apsw.SQLITE_CONSTRAINT_NOTNULL),
        ("INSERT INTO t VALUES ('x', 1)", dbapi.IntegrityError, apsw.SQLITE_MISMATCH),
        ("SELECT zeroblob(3000000000)", dbapi.DataError, apsw.SQLITE_TOOBIG),
        ("SELECT * FROM missing", dbapi.OperationalError, apsw.SQLITE_ERROR),
        ("SELEC", dbapi.OperationalError, apsw.SQLITE_ERROR),
    ],
)
def test_sqlite_errors_keep_their_extended_code(
    connection: dbapi.Connection, operation: str, error: type[dbapi.Error], code: int
) -> None:
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b NOT NULL)")
    connection.execute("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(dbapi.Error) as caught:
        connection.execute(operation)
    assert (type(caught.value), caught.value.sqlite_errorcode) == (error, code)
    assert isinstance(caught.value.__cause__, apsw.Error)


def test_every_error_of_apsw_becomes_one_of_ours() -> None:
    kinds = [kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)]
    assert len(kinds) > 30
    for kind in kinds:
        with pytest.raises(dbapi.Error) as caught, dbapi._translating:
            raise kind("text")
        assert str(caught.value) == "text"


def test_an_error_while_fetching_is_translated(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT 0 UNION ALL SELECT zeroblob(3000000000)")
    assert cursor.fetchone() == (0,)
    with pytest.raises(dbapi.DataError):
        cursor.fetchone()


def test_a_busy_database_is_an_operational_error(path: str) -> None:
    with (
        closing(dbapi.connect(path, isolation_level="IMMEDIATE")) as holder,
        closing(dbapi.connect(path, isolation_level="IMMEDIATE", timeout=0)) as other,
    ):
        holder.begin()
        with pytest.raises(dbapi.OperationalError) as caught:
            other.begin()
        assert caught.value.sqlite_errorcode == apsw.SQLITE_BUSY
        holder.rollback()
        other.begin()
        assert other.in_transaction


def test_the_timeout_is_given_to_sqlite_in_milliseconds(path: str) -> None:
    with closing(dbapi.connect(path, timeout=1.5)) as connection:
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (1500,)


def test_a_file_that_is_no_database_is_a_database_error_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "text.db"
    file.write_bytes(b"no database " * 100)
    with closing(dbapi.connect(str(file))) as connection, pytest.raises(dbapi.DatabaseError) as caught:
        connection.execute("SELECT * FROM sqlite_schema")
    assert (type(caught.value), caught.value.sqlite_errorcode) == (dbapi.DatabaseError, apsw.SQLITE_NOTADB)
    assert file.read_bytes() == b"no database " * 100


def test_a_file_that_cannot_be_opened_is_an_operational_error(tmp_path: Path) -> None:
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect(str(tmp_path / "missing" / "some.db"))


def test_a_closed_connection_refuses_everything_but_close() -> None:
    connection = dbapi.connect(":memory:")
    cursor = connection.execute(ONE_TO_NINE)
    connection.close()
    connection.close()
    for use in (
        connection.cursor,
        connection.begin,
        connection.commit,
        connection.rollback,
        lambda: connection.create_function("f", 0, int),
        lambda: connection.execute("SELECT 1"),
        lambda: cursor.execute("SELECT 1"),
        lambda: cursor.executemany("SELECT 1", [()]),
        cursor.fetchone,
        cursor.fetchmany,
        cursor.fetchall,
    ):
        with pytest.raises(dbapi.ProgrammingError):
            use()
    cursor.close()


def test_a_closed_cursor_refuses_everything_but_close(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT 1")
    cursor.close()
    cursor.close()
    for use in (lambda: cursor.execute("SELECT 1"), cursor.fetchone, cursor.fetchmany, cursor.fetchall):
        with pytest.raises(dbapi.ProgrammingError):
            use()


def test_an_unknown_isolation_level_is_a_value_error(connection: dbapi.Connection) -> None:
    with pytest.raises(ValueError, match="IMMEDIATE"):
        connection.isolation_level = "immediate; DROP TABLE t"


# --- a connection opened elsewhere ------------------------------------------------------------------------------------


def test_a_wrapped_connection_keeps_its_settings_and_shares_its_transaction(path: str) -> None:
    handle = apsw.Connection(path)
    connection = dbapi.Connection.wrap(handle, isolation_level="IMMEDIATE")
    assert connection.apsw is handle
    connection.begin()
    handle.execute("CREATE TABLE t (a)")
    connection.execute("INSERT INTO t VALUES (?)", (datetime.date(2024, 2, 29),))
    assert handle.in_transaction
    with pytest.raises(TypeError):  # the wrapper's conversions are its own
        handle.execute("INSERT INTO t VALUES (?)", cast("Any", (datetime.date(2024, 2, 29),)))
    assert (handle.exec_trace, handle.convert_binding) == (None, None)
    connection.rollback()
    assert handle.execute("SELECT count(*) FROM sqlite_schema").get == 0
    connection.close()
    with pytest.raises(apsw.ConnectionClosedError):
        handle.execute("SELECT 1")


def test_an_engine_uses_connections_opened_elsewhere(path: str) -> None:
    def creator() -> dbapi.Connection:
        return dbapi.Connection.wrap(apsw.Connection(path), isolation_level="IMMEDIATE")

    engine = sqlalchemy.create_engine("sqlite+apsw://", creator=creator, poolclass=sqlalchemy.QueuePool)
    with engine.begin() as connection:
        assert {str(connection.get_isolation_level()), str(connection.default_isolation_level)} == {"IMMEDIATE"}
        connection.execute(text("CREATE TABLE t (a)"))
        assert _is_locked(path)
    assert _tables(engine) == ["t"]
    engine.dispose()


# --- the dialect ------------------------------------------------------------------------------------------------------


def _is_locked(path: str) -> bool:
    with closing(apsw.Connection(path)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return True
        return False


def test_sqlite3_is_not_imported() -> None:
    program = """
import sys, sqlalchemy
engine = sqlalchemy.create_engine("sqlite+apsw://")
with engine.begin() as connection:
    connection.execute(sqlalchemy.text("CREATE TABLE t (a)"))
    assert sqlalchemy.inspect(connection).get_table_names() == ["t"]
found = sorted(name for name in sys.modules if "sqlite3" in name)
assert "apsw" in sys.modules and not found, found
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_versions_are_those_of_apsw(engine: sqlalchemy.Engine) -> None:
    with engine.connect():
        assert isinstance(engine.dialect, ApswDialect)
        assert str(engine.dialect.dbapi_version) == apsw.apsw_version()
        assert engine.dialect.server_version_info == tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def test_ddl_is_taken_back_by_a_rollback(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE t (a)"))
        connection.execute(text("INSERT INTO t VALUES (1)"))
        connection.execute(text("CREATE INDEX t_a ON t (a)"))
        connection.rollback()
    assert _tables(engine) == []


def test_a_savepoint_is_taken_back_alone(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (a)"))
        with connection.begin_nested() as savepoint:
            connection.execute(text("CREATE TABLE u (a)"))
            connection.execute(text("INSERT INTO t VALUES (1)"))
            savepoint.rollback()
        with connection.begin_nested():
            connection.execute(text("INSERT INTO t VALUES (2)"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT a FROM t")).all() == [(2,)]
    assert _tables(engine) == ["t"]


def test_two_selects_of_a_transaction_see_the_same_database(path: str) -> None:
    engine = sqlalchemy.create_engine(f"sqlite+apsw:///{path}")
    with closing(apsw.Connection(path)) as writer:
        writer.pragma("journal_mode", "wal")
        writer.execute("CREATE TABLE t (a)")
        with engine.connect() as reader:
            assert reader.scalar(text("SELECT count(*) FROM t")) == 0
            writer.execute("INSERT INTO t VALUES (1)")
            assert reader.scalar(text("SELECT count(*) FROM t")) == 0
            reader.rollback()
            assert reader.scalar(text("SELECT count(*) FROM t")) == 1
    engine.dispose()


@pytest.mark.parametrize(
    ("level", "locks"), [("DEFERRED", False), ("IMMEDIATE", True), ("EXCLUSIVE", True), ("SERIALIZABLE", False)]
)
def test_the_isolation_level_is_the_kind_of_begin(path: str, level: Any, locks: bool) -> None:
    for given in (f"sqlite+apsw:///{path}", f"sqlite+apsw:///{path}?isolation_level={level}"):
        in_url = "?" in given
        if in_url and level == "SERIALIZABLE":
            continue  # SQLAlchemy's name; the driver calls it ""
        engine = sqlalchemy.create_engine(given, **({} if in_url else {"isolation_level": level}))
        with engine.connect() as connection:
            assert connection.get_isolation_level() == level
            connection.begin()
            assert _is_locked(path) is locks
        engine.dispose()


@pytest.mark.parametrize("own", [None, "IMMEDIATE"])
@pytest.mark.parametrize("level", ["DEFERRED", "EXCLUSIVE", "AUTOCOMMIT", "READ UNCOMMITTED"])
def test_the_pool_puts_the_isolation_level_back(path: str, own: Any, level: Any) -> None:
    engine = sqlalchemy.create_engine(
        f"sqlite+apsw:///{path}", pool_size=1, **({"isolation_level": own} if own else {})
    )
    with engine.connect() as connection:
        before = connection.connection.dbapi_connection
    with engine.connect().execution_options(isolation_level=level) as connection:
        assert connection.connection.dbapi_connection is before
        connection.begin()
        assert _is_locked(path) is (level == "EXCLUSIVE")
    with engine.connect() as connection:
        assert connection.connection.dbapi_connection is before
        assert connection.get_isolation_level() == (own or "SERIALIZABLE")
        assert connection.scalar(text("PRAGMA read_uncommitted")) == 0
    engine.dispose()


def test_a_kind_of_begin_takes_read_uncommitted_back(engine: sqlalchemy.Engine) -> None:
    with engine.connect().execution_options(isolation_level="READ UNCOMMITTED") as connection:
        assert connection.scalar(text("PRAGMA read_uncommitted")) == 1
        connection.rollback()
        connection.execution_options(isolation_level=cast("Any", "IMMEDIATE"))
        assert connection.scalar(text("PRAGMA read_uncommitted")) == 0


def test_autocommit_opens_no_transaction(path: str) -> None:
    engine = sqlalchemy.create_engine(f"sqlite+apsw:///{path}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE t (a)"))
        connection.execute(text("VACUUM"))
        connection.rollback()
    assert _tables(engine) == ["t"]
    engine.dispose()


def test_a_busy_begin_reaches_the_caller_as_sqlalchemys_error(path: str) -> None:
    engine = sqlalchemy.create_engine(f"sqlite+apsw:///{path}?timeout=0", isolation_level=cast("Any", "IMMEDIATE"))
    with closing(apsw.Connection(path)) as holder, engine.connect() as connection:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(exc.OperationalError) as caught:
            connection.execute(text("SELECT 1"))
        assert isinstance(caught.value.orig, dbapi.OperationalError)
        assert caught.value.orig.sqlite_errorcode == apsw.SQLITE_BUSY
        holder.execute("ROLLBACK")
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


def test_a_connection_closed_under_the_pool_is_replaced(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        cast("dbapi.Connection", connection.connection.dbapi_connection).close()
        with pytest.raises(exc.ProgrammingError) as caught:
            connection.execute(text("SELECT 1"))
        assert caught.value.connection_invalidated
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


def test_returning_and_executemany_work_through_the_orm_of_tables(engine: sqlalchemy.Engine) -> None:
    table = sqlalchemy.Table(
        "t",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("a", sqlalchemy.Integer, primary_key=True),
        sqlalchemy.Column("b", sqlalchemy.DateTime),
    )
    when = datetime.datetime(2024, 2, 29, 1, 2, 3)  # the column has no zone
    with engine.begin() as connection:
        table.create(connection)
        inserted = connection.execute(table.insert().returning(table.c.a, table.c.b), [{"b": when}, {"b": None}])
        assert inserted.all() == [(1, when), (2, None)]
        assert connection.execute(table.insert(), [{"b": when}] * 3).rowcount == 3
        assert connection.execute(table.insert().values(b=when)).inserted_primary_key == (6,)
        assert connection.execute(table.delete().where(table.c.a > 2)).rowcount == 4


def test_regexp_and_floor_take_null(engine: sqlalchemy.Engine) -> None:
    row = text("SELECT 'abc' REGEXP '^a', 'abc' REGEXP '^b', NULL REGEXP 'a', 'a' REGEXP NULL, floor(1.5), floor(NULL)")
    with engine.connect() as connection:
        assert connection.execute(row).one() == (1, 0, None, None, 1, None)


def test_a_memory_database_is_one_for_its_thread() -> None:
    engine = sqlalchemy.create_engine("sqlite+apsw://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (a)"))
    assert _tables(engine) == ["t"]
    engine.dispose()


def test_a_uri_is_opened_as_one(path: str) -> None:
    apsw.Connection(path).close()
    engine = sqlalchemy.create_engine(f"sqlite+apsw:///file:{path}?mode=ro&uri=true")
    with engine.connect() as connection, pytest.raises(exc.OperationalError) as caught:
        connection.execute(text("CREATE TABLE t (a)"))
    assert isinstance(caught.value.orig, dbapi.OperationalError)
    assert caught.value.orig.sqlite_errorcode == apsw.SQLITE_READONLY
    engine.dispose()


# --- SQLAlchemy's own suite -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite+apsw:///querytest.db", "sqlite+apsw:///:memory:"], ids=["file", "memory"])
def test_sqlalchemys_compliance_suite_passes(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "setup.cfg"), "--dburi", url, str(SUITE / "suite.py")]
    # The plugin leaves its databases in the working folder, and -p finds it only by the module path.
    environment = {**os.environ, "PYTHONPATH": str(SUITE), "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    summary = run.stdout.strip().rpartition("\n")[2]
    print(url, summary)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) ([a-z]+)", summary.partition(" in ")[0])}
    assert counts.keys() <= {"passed", "skipped"}
    assert counts["passed"] > 1500
