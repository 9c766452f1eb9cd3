"""Cyclic garbage collection, put off while many entries are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_cyclic_garbage() -> Iterator[None]:
    """Parsing makes no cycles, and looking for them costs from a third of the time to as much again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
