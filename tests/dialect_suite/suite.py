"""SQLAlchemy's compliance suite for dialects.

Not named test_*, so that a run of the repository's tests leaves it alone: tests/test_dialect.py starts it in a process
of its own.
"""

# The star is how the suite is meant to be taken in: pytest collects the classes from this module.
from sqlalchemy.testing.suite import *  # noqa: F403
