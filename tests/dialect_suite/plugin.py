"""The pytest plugin of SQLAlchemy's compliance suite, prepared for sqlite+apsw.

It is a plugin and no conftest.py, because it would otherwise change every other test of this repository as well.
"""

import sys

import pytest

from sessiondb.dialect import ApswDialect

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

# The star is how SQLAlchemy documents it: pytest finds the hooks in this module. It has to follow the line above.
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403


def _load_provisioning() -> None:
    # Makes ATTACH ... AS test_schema work. Imported late, because sqlalchemy.testing must not be loaded before its
    # plugin is configured. A module `provision` beside the dialect would do as well, but the product has no test code.
    from sqlalchemy.dialects.sqlite import provision

    provision._drivernames.add("apsw")


ApswDialect.load_provisioning = staticmethod(_load_provisioning)  # type: ignore[method-assign]  # see above


def pytest_terminal_summary() -> None:
    """Fails the run when it loaded another SQLite, for then it has shown nothing about this one."""
    if "sqlite3" in sys.modules:
        raise AssertionError("sqlite3 was imported during the compliance suite")
