"""Migrations and metadata are one schema; statements are right and use their indices; the files say so too."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NUMERIC, create_engine, inspect, text

import sessiondb
from sessiondb import Store
from sessiondb.connection import open_database
from sessiondb.schema import REVISION
from sessiondb.schema.search import VIRTUAL_TABLES
from sessiondb.schema.tables import AnyType, metadata
from sessiondb.schema.views import TRIGGERS, VIEWS
from sessiondb.text_index import CREATE_WORDS, DROP_WORDS

ROOT = Path(__file__).resolve().parent.parent


def test_the_revision_of_the_code_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "sessiondb:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_migrating_an_empty_file_gives_what_the_metadata_says(store: Store) -> None:
    engine = store.sqlalchemy_engine()
    with engine.connect() as connection:
        options = {"compare_type": _differs, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, metadata)
    engine.dispose()
    # SQLAlchemy overlooks ON DELETE behind a column, where ALTER TABLE has it; the next test asks SQLite itself.
    differences = [d for d in differences if not (d[0] in ("add_fk", "remove_fk") and "parent_pk" in str(d))]
    # Nor does it know virtual tables; see the test of those.
    others = ("alembic_version", *VIRTUAL_TABLES)
    assert [d for d in differences if not any(name in str(d) for name in others)] == []


def _differs(_context: object, _inspected: object, column: Any, inspected: Any, declared: Any) -> bool | None:
    # SQLAlchemy reads ANY back as NUMERIC, its rule for type names it does not know.
    return not isinstance(inspected, NUMERIC) if isinstance(declared, AnyType) else None


def test_create_all_and_the_migrations_give_the_same_columns_and_constraints(store: Store, tmp_path: Path) -> None:
    migrated = store.sqlalchemy_engine()
    created = create_engine(f"sqlite+apsw:///{tmp_path}/created.db")
    metadata.create_all(created)
    for table in metadata.tables:
        ours, theirs = inspect(migrated), inspect(created)
        shape = [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in ours.get_columns(table)]
        assert shape == [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in theirs.get_columns(table)]
        assert _comparable(ours.get_indexes(table)) == _comparable(theirs.get_indexes(table))
        with migrated.connect() as a, created.connect() as b:
            pragma = text(f"SELECT wr, strict FROM pragma_table_list WHERE name = '{table}'")
            assert a.execute(pragma).fetchall() == b.execute(pragma).fetchall()
            columns = '"table", "from", "to", on_update, on_delete'
            references = text(f"SELECT {columns} FROM pragma_foreign_key_list('{table}') ORDER BY 2")
            assert a.execute(references).fetchall() == b.execute(references).fetchall()
    migrated.dispose()
    created.dispose()


def _comparable(indexes: list[Any]) -> list[dict[str, str]]:
    flat = [index | index.get("dialect_options", {}) | {"dialect_options": ""} for index in indexes]
    return [{key: str(value) for key, value in index.items()} for index in flat]


@pytest.mark.parametrize("name", [*VIEWS, *TRIGGERS, *VIRTUAL_TABLES])
def test_a_view_trigger_or_virtual_table_in_the_database_is_the_one_in_the_schema(store: Store, name: str) -> None:
    (row,) = store.sql("SELECT sql FROM sqlite_schema WHERE name = ?", (name,))
    assert " ".join(row["sql"].split()) == " ".join((VIEWS | TRIGGERS | VIRTUAL_TABLES)[name].split())


def statements() -> dict[str, str]:
    """Every SQL constant of the package, by module and name."""
    found = {}
    for info in pkgutil.walk_packages(sessiondb.__path__, "sessiondb."):
        if ".migrations" in info.name or ".cli" in info.name:
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.startswith("FOREIGN_"):  # of another program's database
                continue
            if name.isupper() and isinstance(value, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", value):
                found[f"{info.name}.{name}"] = value
    return found


STATEMENTS = statements()

SCANS_ON_PURPOSE = {
    # the whole table is what is asked for
    "sessiondb.upgrade.SELECT_REVISION": "alembic_version",
    "sessiondb.connection.COUNT_OBJECTS": "sqlite_master",
    "sessiondb.connection.SELECT_TABLES": "sqlite_schema",
    "sessiondb.importer.SELECT_ANY_SESSION": "session",
    "sessiondb.check.COUNT_LINES_OF_NOBODY": "line",
    "sessiondb.check.COUNT_ENTRIES_OF_NOBODY": "entry",
    "sessiondb.check.COUNT_BLOCKS_OF_NOBODY": "text_block",
    "sessiondb.check.COUNT_STRAY_TEXTS": "entry_fts_docsize",
    "sessiondb.text_index.COUNT_STRAY_TEXTS": "entry_fts_docsize",
    "sessiondb.check.COUNT_STRAY_RESULTS": "result_fts_docsize",
    "sessiondb.text_index.COUNT_STRAY_RESULTS": "result_fts_docsize",
    "sessiondb.text_index.DELETE_STRAY_BLOCKS": "text_block",
    "sessiondb.text_index.DELETE_STRAY_TEXTS": "entry_fts_docsize",
    "sessiondb.text_index.DELETE_STRAY_RESULTS": "result_fts_docsize",
    "sessiondb.check.SELECT_PROMPTS": "history",
    "sessiondb.history_import.SELECT_SAID": "e",
    # in the order of an index, until there are enough
    "sessiondb.history.SELECT_NEWEST_PROMPT": "history",
    "sessiondb.history.SELECT_RECENT": "h",
    # when somebody types a prompt to be forgotten
    "sessiondb.history.SELECT_SAME_PROMPTS": "history",
    "sessiondb.text_index.SELECT_WORDS": "temp",
    "sessiondb.rows.SELECT_SESSIONS": "session",
    "sessiondb.rows.IS_ANY_TEXT_INDEXED": "text_block",
    "sessiondb.store.SELECT_SESSIONS": "session",
    "sessiondb.store.SELECT_LAST_IMPORT": "source",
    "sessiondb.sessions.SELECT_PAGE": "s",
    "sessiondb.sessions.COUNT_MATCHES": "s",
    "sessiondb.sessions.SELECT_ALL_PATHS": "source",
    "sessiondb.sources.SELECT_ALL": "o",
    "sessiondb.sources.SELECT_ROOTS": "root",
    "sessiondb.check.COUNT_ORIGINALS_OF_NOBODY": "original",
    "sessiondb.lineage.COUNT_WRONG_PARENTS": "c",
    "sessiondb.blobs.SELECT_SESSIONS_MISSING": "r",
    # one short row a session, asked once an import
    "sessiondb.batch.SELECT_LIVE": "session",
    # one short row a session, asked once for a big file or a name typed by hand
    "sessiondb.importer.SELECT_SAME_SIZE": "session",
    "sessiondb.sessions.SELECT_BY_PREFIX": "s",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_compiles_and_scans_no_table_by_accident(store: Store, name: str) -> None:
    db = store.connection
    db.execute(CREATE_WORDS)
    plan = [row[3] for row in db.execute("EXPLAIN QUERY PLAN " + STATEMENTS[name], _any_values(STATEMENTS[name]))]
    db.execute(DROP_WORDS)
    scanned = {m[1] for step in plan if (m := re.match(r"SCAN (?!\d+[ -])(\w+)\b(?! VIRTUAL)", step))}
    scanned -= {"k", "up", "p"}  # the keys that were given, what a walk has reached, what a parent may be
    assert scanned - {SCANS_ON_PURPOSE.get(name), "CONSTANT"} == set(), plan


def _any_values(sql: str) -> dict[str, object] | tuple[object, ...]:
    names = re.findall(r":(\w+)", sql)
    if names:
        return dict.fromkeys(names, "[]")
    numbers = [int(n) for n in re.findall(r"\?(\d+)", sql)]
    return (None,) * (max(numbers) if numbers else sql.count("?"))


def test_the_statements_are_found_at_all() -> None:
    assert len(STATEMENTS) > 40


@pytest.mark.parametrize("path", ["schema/SCHEMA.md"])
def test_the_document_names_every_table_view_and_column(path: str, open_store: Callable[..., Store]) -> None:
    document = (ROOT / path).read_text()
    store = open_store()
    for name in [*metadata.tables, *VIEWS]:
        assert f"`{name}`" in document
        for column in store.sql(f"SELECT name FROM pragma_table_info('{name}')"):
            assert f"`{column['name']}`" in document, f"{name}.{column['name']}"


def test_deleting_a_session_row_leaves_nothing_of_it(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"type":"session","version":3,"id":"a","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\nbroken\n')
    store.import_paths([file])
    db = open_database(store.database)
    db.execute("DELETE FROM session")
    for table in ("line", "entry", "original", "fault", "source", "blob_reference"):
        assert db.execute(f"SELECT count(*) FROM {table}").get == 0
    db.close()


def test_staged_rows_are_in_no_view(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"type":"message","id":"1","timestamp":"2026-01-01T00:00:00.000Z"}\nbroken\n')
    store.import_paths([file])
    db: apsw.Connection = open_database(store.database)
    db.execute("UPDATE session SET staged_by = 'elsewhere 1 x'")
    for view in ("sessions", "entries", "faults"):
        assert store.sql(f"SELECT count(*) AS n FROM {view}") == [{"n": 0}]
    assert store.sessions() == []
    db.execute("UPDATE session SET staged_by = NULL")
    db.close()
    assert store.sql("SELECT count(*) AS n FROM entries") == [{"n": 1}]
