"""Opening a database: new, older, newer, foreign, locked, not there; whatever the verdict, the file stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

from sessiondb import Store, dbapi
from sessiondb.connection import default_path, open_database
from sessiondb.errors import (
    BadQueryError,
    DatabaseBusyError,
    DatabaseUnavailableError,
    NotADatabaseError,
    ReadOnlyError,
    SchemaTooNewError,
    SessionDBWarning,
)
from sessiondb.schema import APPLICATION_ID
from tests.support import GOLDEN, entry, header, tables, write

LINE = b'{"type":"session","version":3,"id":"one","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'


def run_python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120, check=False)


def with_one_session(open_store: Callable[..., Store], tmp_path: Path) -> Path:
    (tmp_path / "one.jsonl").write_bytes(LINE)
    store = open_store()
    store.import_paths([tmp_path / "one.jsonl"])
    return store.database


def test_a_new_database_and_its_folder_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store.open(tmp_path / "a" / "b" / "s.db") as store:
            modes = {p.name: p.stat().st_mode & 0o777 for p in store.database.parent.iterdir()}
            assert modes == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}
            assert [(tmp_path / f).stat().st_mode & 0o777 for f in ("a", "a/b")] == [0o700, 0o700]
    finally:
        os.umask(before)


def test_the_default_path_is_the_variable_then_the_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path(os.environ["HOME"])
    assert default_path() == home / ".local/share/sessiondb/sessions.db"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_path() == Path("/data/sessiondb/sessions.db")
    monkeypatch.setenv("SESSIONDB_DB", "~/mine.db")
    assert default_path() == home / "mine.db"


def test_a_missing_database_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError, match="does not exist"):
        Store.open(tmp_path / "none" / "s.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"this is no database" * 40, b"\0" * 5000, b"x"], ids=["text", "zeros", "byte"])
def test_a_file_that_is_no_database_is_refused_and_left(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotADatabaseError, match="left as it is"):
        Store.open(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_another_programs_database_is_refused_and_left(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE bookmarks (url)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabaseError, match="another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError, match="no regular file"):
        Store.open(tmp_path)


def test_a_newer_database_opens_read_only_with_a_warning_while_its_views_answer(
    open_store: Callable[..., Store], tmp_path: Path
) -> None:
    path = with_one_session(open_store, tmp_path)
    db = apsw.Connection(str(path))
    db.execute("UPDATE alembic_version SET version_num = '9999'; ALTER TABLE session ADD COLUMN future TEXT")
    db.close()
    with pytest.warns(SessionDBWarning, match="read-only"):
        store = Store.open(path)
    with store:
        assert store.read_only
        assert [s.id for s in store.sessions()] == ["one"]
        with pytest.raises(ReadOnlyError):
            store.import_paths([tmp_path])
    db = apsw.Connection(str(path))
    db.execute("DROP VIEW entries")
    db.close()
    with pytest.raises(SchemaTooNewError, match="9999"):
        Store.open(path)
    db = apsw.Connection(str(path))
    db.execute("UPDATE alembic_version SET version_num = '0001'; CREATE VIEW entries AS SELECT 1")
    db.close()


def test_a_locked_database_is_busy_after_the_timeout_and_unchanged(
    open_store: Callable[..., Store], tmp_path: Path
) -> None:
    path = with_one_session(open_store, tmp_path)
    (tmp_path / "two.jsonl").write_bytes(LINE.replace(b"one", b"two"))
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")
    with Store.open(path, timeout=0.2) as store:
        with pytest.raises(DatabaseBusyError, match="try again"):
            store.import_paths([tmp_path / "two.jsonl"])
        assert [s.id for s in store.sessions()] == ["one"]
        holder.execute("ROLLBACK")
        assert store.import_paths([tmp_path / "two.jsonl"]).imported == 1
    holder.close()


def test_many_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    """B51, B52."""
    code = "import sys; from sessiondb import Store; s = Store.open(sys.argv[1]); print(s.sessions()); s.close()"
    for turn in range(2):
        args = [sys.executable, "-c", code, str(tmp_path / f"{turn}.db")]
        children = [subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(5)]
        outcomes = [child.communicate(timeout=120) for child in children]
        assert outcomes == [("[]\n", "")] * 5


def test_each_thread_has_a_connection_of_its_own(open_store: Callable[..., Store], tmp_path: Path) -> None:
    path = with_one_session(open_store, tmp_path)
    seen: list[str] = []
    with Store.open(path) as store:
        threads = [threading.Thread(target=lambda: seen.extend(s.id for s in store.sessions())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == ["one"] * 8


def test_sql_only_reads(open_store: Callable[..., Store], tmp_path: Path) -> None:
    with_one_session(open_store, tmp_path)
    store = open_store()
    assert store.sql("SELECT id, line_count FROM sessions WHERE id = ?", ("one",)) == [{"id": "one", "line_count": 1}]
    assert store.sql("SELECT id FROM sessions WHERE id = :id", {"id": "none"}) == []
    for wrong in ("DELETE FROM session", "SELEC 1", "SELECT :missing", "CREATE TABLE t (a)"):
        with pytest.raises(BadQueryError):
            store.sql(wrong)
    assert len(store.sessions()) == 1


def test_a_database_that_is_current_is_opened_without_alembic_or_sqlalchemy(
    open_store: Callable[..., Store], tmp_path: Path
) -> None:
    path = with_one_session(open_store, tmp_path)
    code = (
        "import sys; from sessiondb import Store\n"
        "with Store.open(sys.argv[1]) as s: s.sessions()\n"
        "print([m for m in ('sqlalchemy', 'alembic', 'sqlite3', 'rich') if m in sys.modules])"
    )
    assert run_python(code, str(path)).stdout == "[]\n"


# Older databases


def of_revision_1(path: Path, like: Store) -> Path:
    """A database as revision 0001 left it, with the sessions of another."""
    config = Config()
    config.set_main_option("script_location", "sessiondb:migrations")
    db = open_database(path)
    wrapped = dbapi.Connection.wrap(db)
    engine = create_engine("sqlite+apsw://", creator=lambda: wrapped, poolclass=StaticPool)
    with engine.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("ATTACH ? AS newer", (str(like.database),))
    db.execute("BEGIN; PRAGMA defer_foreign_keys = ON")
    for table in ("session", "line", "entry", "fault", "source", "root", "blob", "blob_reference", "state"):
        columns = ", ".join(row[1] for row in db.execute(f"PRAGMA main.table_info({table})"))
        db.execute(f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    db.execute("COMMIT")
    db.close()
    engine.dispose()
    return path


def some_sessions(store: Store, folder: Path) -> None:
    """With settings above compactions, on branches and in a cycle, labels, and parents by id and by path."""
    root = folder / "root.jsonl"
    kinds = ("mode_change", "label", "model_change", "compaction")
    chain = [entry(n, n - 1 or None, type=kind) for n, kind in enumerate(kinds, start=1)]
    cycle = [entry(5, 1, type="compaction"), entry(6, 7, type="mode_change"), entry(7, 6, type="compaction")]
    forward = [entry(1, 2, type="compaction"), entry(2, type="mode_change")]
    write(root, header("r"), b"broken\n", *chain, *cycle)
    write(folder / "id.jsonl", header("i", parentSession="r"), *forward)
    write(folder / "path.jsonl", header("p", parentSession=str(root)), entry(1))
    write(folder / "self.jsonl", header("s", parentSession="s"), entry(1))
    for number in range(2):
        write(folder / f"twin-{number}.jsonl", header("t"), entry(number))
    write(folder / "unclear.jsonl", header("u", parentSession="t"), entry(1))
    store.import_paths([folder, GOLDEN])


def test_an_older_database_is_upgraded_and_is_then_as_if_it_were_made_today(
    open_store: Callable[..., Store], tmp_path: Path
) -> None:
    today = open_store("today.db")
    some_sessions(today, tmp_path / "in")
    path = of_revision_1(tmp_path / "db/older.db", today)
    with pytest.raises(ReadOnlyError, match="0001"):
        Store.open(path, read_only=True)
    upgraded = open_store("older.db")
    assert tables(upgraded) == tables(today)
    states = upgraded.sql("SELECT count(state_pk) AS n FROM entry")[0]["n"]
    parents = upgraded.sql("SELECT id FROM sessions WHERE parent_pk IS NOT NULL ORDER BY id")
    assert (states > 4, [row["id"] for row in parents]) == (True, ["i", "p"])


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(open_store: Callable[..., Store], tmp_path: Path) -> None:
    today = open_store("today.db")
    some_sessions(today, tmp_path / "in")
    path = of_revision_1(tmp_path / "db/older.db", today)
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE original (mine)")  # in the way of the eighth statement
    before = list(db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name"))
    with pytest.raises(OperationalError, match="already exists"):
        Store.open(path)
    assert list(db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name")) == before
    assert db.execute("SELECT version_num FROM alembic_version").get == "0001"
    db.execute("DROP TABLE original")
    db.close()
    assert tables(open_store("older.db")) == tables(today)


def test_many_processes_may_upgrade_a_database_at_once(open_store: Callable[..., Store], tmp_path: Path) -> None:
    today = open_store("today.db")
    some_sessions(today, tmp_path / "in")
    path = of_revision_1(tmp_path / "db/older.db", today)
    code = "import sys; from sessiondb import Store; s = Store.open(sys.argv[1]); print(len(s.sessions())); s.close()"
    args = [sys.executable, "-c", code, str(path)]
    children = [subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outcomes = [child.communicate(timeout=120) for child in children]
    assert outcomes == [(f"{len(today.sessions())}\n", "")] * 3
