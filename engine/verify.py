"""Holds every session against the file it came from, byte for byte: may the file be deleted?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Literal

import apsw

from sessiondb.blobs import BlobStore
from sessiondb.connection import select_value, snapshot
from sessiondb.files import open_regular
from sessiondb.jsonl import split_lines
from sessiondb.rows import join_pieces, read_original_slots
from sessiondb.sessions import SessionInfo, by_key
from sessiondb.sources import Source, Sources

State = Literal["equal", "grown", "changed", "gone", "unreadable", "damaged"]

SELECT_DIGEST = "SELECT digest FROM session WHERE pk = :pk"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One source held against what the database has of it.

    `equal`: every byte is held. `grown`: the file goes on for `lines` lines that are not held. `changed`: `lines` is
    the first line that differs. `gone`: no file any more; the held bytes have the digest they were imported with.
    `unreadable`, `damaged` (the held bytes do not have that digest, or a blob's not its own): see `detail`. `ahead` is
    how many bytes the session has more than were imported (appended since, or a rewrite made it longer).
    `missing_blobs` are referred to and not held.
    """

    session: str
    path: str
    state: State
    lines: int = 0
    ahead: int = 0
    missing_blobs: tuple[str, ...] = ()
    detail: str = ""

    @property
    def is_good(self) -> bool:
        """Nothing differs: the bytes of the file, or of the import when it is gone, are all here."""
        return self.state in ("equal", "gone")

    @property
    def is_deletable(self) -> bool:
        """The file is there, every byte of it is held and checked, and so is every blob it refers to."""
        return self.state == "equal" and not self.missing_blobs

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON can hold it."""
        return asdict(self) | {"missing_blobs": list(self.missing_blobs), "deletable": self.is_deletable}


def verify_session(db: apsw.Connection, session_pk: int) -> list[Verdict]:
    """One verdict for each path the session answers to; with an empty path for one whose file is another's now."""
    with snapshot(db):
        return list(_verdicts(db, by_key(db, session_pk)))


def _verdicts(db: apsw.Connection, info: SessionInfo) -> Iterator[Verdict]:
    store = BlobStore(db)
    missing = tuple(store.missing(info.pk))
    damage = _damage(db, info, store)
    ahead = max(0, info.byte_count - info.imported_bytes)
    sources = Sources(db).of_session(info.pk)
    state: State
    for source in sources:
        state, lines, detail = ("damaged", 0, damage) if damage else _compare(db, info, source)
        yield Verdict(info.id, str(source.path), state, lines, ahead, missing, detail)
    if not sources:
        state = "damaged" if damage else "gone"
        yield Verdict(info.id, "", state, 0, ahead, missing, damage)


def _damage(db: apsw.Connection, info: SessionInfo, store: BlobStore) -> str:
    """What of the held bytes is not as it was taken in; empty when all is."""
    if not _has_its_digest(db, info):
        return "the stored bytes do not have the digest they were imported with"
    wrong = next(_wrong_blobs(store, info.pk), None)
    return f"the stored bytes of blob {wrong} do not have its digest" if wrong else ""


def _has_its_digest(db: apsw.Connection, info: SessionInfo) -> bool:
    hasher = hashlib.sha256()
    for piece in read_original_slots(db, info.pk):
        hasher.update(piece)
    return bool(hasher.digest() == select_value(db, SELECT_DIGEST, {"pk": info.pk}))


def _wrong_blobs(store: BlobStore, session_pk: int) -> Iterator[str]:
    for digest, content in store.of_session(session_pk):
        if hashlib.sha256(content).hexdigest() != digest:
            yield digest


def _compare(db: apsw.Connection, info: SessionInfo, source: Source) -> tuple[State, int, str]:
    try:
        with open_regular(source.path) as stream:
            return _compare_lines(join_pieces(read_original_slots(db, info.pk)), split_lines(stream))
    except (FileNotFoundError, NotADirectoryError):
        return "gone", 0, ""
    except OSError as error:
        return "unreadable", 0, (error.strerror or str(error)).lower()


def _compare_lines(held: Iterator[bytes], there: Iterator[bytes]) -> tuple[State, int, str]:
    number = 0
    for ours, theirs in zip_longest(held, there):
        number += 1
        if ours == theirs:
            continue
        if ours is None:
            return "grown", 1 + sum(1 for _ in there), ""
        if theirs is not None and theirs.startswith(ours) and next(held, None) is None:
            return "grown", 1 + sum(1 for _ in there), f"line {number} was not finished yet"
        what = "missing in the file" if theirs is None else "different"
        return "changed", number, f"line {number} is {what}"
    return "equal", 0, ""
