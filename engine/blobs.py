"""Blobs: what a session's lines refer to as `blob:sha256:<64 hex digits>` and the agents keep in a folder beside."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import apsw

from sessiondb.connection import select, select_value
from sessiondb.errors import sqlite_errors

SELECT_MISSING_OF_SESSION = """
SELECT r.hash FROM blob_reference r
WHERE r.session_pk = :pk AND NOT EXISTS (SELECT 1 FROM blob b WHERE b.hash = r.hash)
ORDER BY r.hash
"""

SELECT_SESSIONS_MISSING = """
SELECT DISTINCT r.session_pk FROM blob_reference r
WHERE NOT EXISTS (SELECT 1 FROM blob b WHERE b.hash = r.hash)
ORDER BY r.session_pk
"""

SELECT_OF_SESSION = """
SELECT r.hash, b.bytes FROM blob_reference r JOIN blob b ON b.hash = r.hash
WHERE r.session_pk = :pk
ORDER BY r.hash
"""

SELECT_BYTES = "SELECT bytes FROM blob WHERE hash = :hash"
INSERT = "INSERT OR IGNORE INTO blob (hash, bytes) VALUES (:hash, :bytes)"

DIGEST = re.compile("[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether it is a SHA-256 in lower-case hex: the only names a blob has."""
    return DIGEST.fullmatch(text) is not None


class Blobs(Protocol):
    """Where bytes are kept under their digest: the SHA-256 in lower-case hex."""

    def put(self, content: bytes) -> str:
        """Keep the bytes; their digest is returned. Putting them again changes nothing."""

    def get(self, digest: str) -> bytes | None:
        """The bytes of that digest, or None when they are not held."""


class BlobStore:
    """The blobs of one database, by the SHA-256 of their bytes in lower-case hex."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None when the database does not hold them."""
        with sqlite_errors(self._db.filename):
            content: bytes | None = select_value(self._db, SELECT_BYTES, {"hash": digest})
        return content

    def put(self, content: bytes) -> str:
        """Keep the bytes; their hash is returned."""
        digest = hashlib.sha256(content).hexdigest()
        with sqlite_errors(self._db.filename):
            self._db.execute(INSERT, {"hash": digest, "bytes": content})
        return digest

    def of_session(self, session_pk: int) -> Iterator[tuple[str, bytes]]:
        """Hash and bytes of every blob the session refers to and the database holds."""
        return ((digest, content) for digest, content in select(self._db, SELECT_OF_SESSION, {"pk": session_pk}))

    def missing(self, session_pk: int) -> list[str]:
        """Hashes the session refers to that the database does not hold."""
        return [h for (h,) in select(self._db, SELECT_MISSING_OF_SESSION, {"pk": session_pk})]

    def sessions_missing_some(self) -> set[int]:
        """Keys of the sessions that refer to a blob the database does not hold."""
        return {pk for (pk,) in select(self._db, SELECT_SESSIONS_MISSING)}


@dataclass(frozen=True, slots=True)
class BlobFile:
    """A blob beside a session file. `content` is None when there is none to take, `problem` then says why."""

    digest: str
    content: bytes | None
    problem: str = ""


def read_beside(session_file: Path, digests: Iterable[str], *, longest: int) -> Iterator[BlobFile]:
    """Look each blob up in `blobs/` of the session's folder and its parents, up to the agent's own folder.

    Only regular files are read, only names of 64 hex digits are ever asked for (other suffixes could lead anywhere),
    and bytes that do not have their name's digest are not taken, nor are those of more than `longest`.
    """
    folders = [parent / "blobs" for parent in list(session_file.parents)[:4]]
    for digest in digests:
        yield _read_one(digest, [folder / digest for folder in folders], longest)


def _read_one(digest: str, places: list[Path], longest: int) -> BlobFile:
    for place in places:
        try:
            status = place.stat()
            if not stat.S_ISREG(status.st_mode):
                continue
            if status.st_size > longest:
                return BlobFile(digest, None, f"{place}: {status.st_size:,} bytes, more than SQLite takes in a value")
            content = place.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            return BlobFile(digest, None, f"{place}: {error.strerror}")
        if hashlib.sha256(content).hexdigest() != digest:
            return BlobFile(digest, None, f"{place}: its bytes have another digest")
        return BlobFile(digest, content)
    return BlobFile(digest, None, "no file of that name in a blobs folder beside the session")
