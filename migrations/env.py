"""What alembic runs to reach the database: the connection comes from sessiondb.upgrade, one transaction for all steps."""

from __future__ import annotations

from alembic import context

# transactional_ddl: SQLite's DDL is transactional over apsw; alembic assumes otherwise and would commit step by step.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
