"""What alembic runs to reach the database: sessiondb.upgrade gives the connection; all steps are one transaction."""

from __future__ import annotations

from alembic import context

# transactional_ddl: SQLite's DDL is transactional over apsw; alembic assumes otherwise and would commit step by step.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
