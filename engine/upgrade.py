"""Brings a database to the revision this code knows, or says why it must not be touched.

alembic costs more than a second to import, so it is imported only when there is something to do.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import apsw

from sessiondb.connection import select, select_value
from sessiondb.errors import ReadOnlyError, SchemaTooNewError, SessionDBWarning, sqlite_errors
from sessiondb.schema import APPLICATION_ID, REVISION
from sessiondb.schema.views import VIEWS

SELECT_REVISION = "SELECT version_num FROM alembic_version"


def require_current(db: apsw.Connection, path: Path, *, read_only: bool) -> bool:
    """Make sure the tables are ours and known; True when the database may be written.

    An older or new database is upgraded in one transaction. One from a newer version is left alone: False and a
    SessionDBWarning when its views still answer, else SchemaTooNewError.
    """
    with sqlite_errors(str(path)):
        revision = read_revision(db)
        if revision == REVISION:
            return not read_only
        if revision is not None and revision > REVISION:
            _require_readable(db, path, revision)
            return False
        if read_only:
            raise ReadOnlyError(f"{path} has an older schema ({revision}); open it once for writing to upgrade it")
        _upgrade(db)
    return True


def read_revision(db: apsw.Connection) -> str | None:
    """The database's revision; None for a file without any table."""
    if not db.table_exists(None, "alembic_version"):
        return None
    return str(select_value(db, SELECT_REVISION))


def _require_readable(db: apsw.Connection, path: Path, revision: str) -> None:
    try:
        for name, create in VIEWS.items():
            columns = create.partition("SELECT")[2].partition("FROM")[0]
            names = [c.rpartition(" AS ")[2].strip() for c in columns.split(",")]
            db.execute(f"SELECT {', '.join(names)} FROM {name} LIMIT 0")
    except apsw.SQLError as error:
        raise SchemaTooNewError(str(path), revision) from error
    warnings.warn(
        f"{path} was written by a newer sessiondb (schema {revision}, this one knows {REVISION}): opened read-only",
        SessionDBWarning,
        stacklevel=4,
    )


def _upgrade(db: apsw.Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    from sessiondb import dbapi

    config = Config()
    config.set_main_option("script_location", "sessiondb:migrations")
    wrapped = dbapi.Connection.wrap(db)
    engine = create_engine("sqlite+apsw://", creator=lambda: wrapped, poolclass=StaticPool, isolation_level="IMMEDIATE")
    with engine.connect() as connection, connection.begin():
        # Another process may have come first; alembic then finds nothing to do.
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        _index_texts(db)


def _index_texts(db: apsw.Connection) -> None:
    """Fill the text index from the lines, unless it was filled before."""
    from sessiondb import rows
    from sessiondb.text_index import write_texts

    if not select_value(db, rows.IS_ANY_TEXT_INDEXED):
        for (session_pk,) in list(select(db, rows.SELECT_SESSIONS)):
            write_texts(db, rows.texts_of_session(db, session_pk))
