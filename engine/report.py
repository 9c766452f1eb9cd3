"""What an import did, counted and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

LISTED_FAULTS: Final = 10_000
"""How many faults a report lists; all are in the database's view `faults`, and the report counts them all."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that was not taken in, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileFault:
    """Something wrong on a line that was taken in. `line` counts from 1, `offset` in bytes from the file's start."""

    path: str
    line: int
    offset: int
    kind: str
    message: str


@dataclass(slots=True)
class ImportReport:
    """The outcome for every path that was looked at.

    `imported` new sessions, `updated` grown ones, `unchanged` those held already (`known_elsewhere` of them under
    another path: one session answers to both), `replaced` those among `imported` that stand for a file whose old part
    changed. Nothing that was left out is missing here.
    """

    database: str
    dry_run: bool = False
    imported: int = 0
    updated: int = 0
    unchanged: int = 0
    known_elsewhere: int = 0
    replaced: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    fault_count: int = 0
    faults: list[FileFault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    missing_blobs: list[Skipped] = field(default_factory=list)
    blobs: int = 0
    vanished: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes_read: int = 0
    seconds: float = 0.0

    def skip(self, path: object, reason: str) -> None:
        self.skipped.append(Skipped(str(path), reason))

    def add(self, other: ImportReport) -> None:
        """Take in what another run over other roots did."""
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, dict):
                mine.update({key: mine.get(key, 0) + count for key, count in theirs.items()})
            elif not isinstance(mine, bool | str):
                setattr(self, item.name, mine + theirs)

    def to_dict(self) -> dict[str, Any]:
        """The report as one JSON document."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is: files and bytes looked at, of how many."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int


OnProgress = Callable[[Progress], None]
