"""Gives sessions back as JSONL files: the bytes as they came, or as the client would write them today."""

from __future__ import annotations

import os
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, get_args

import apsw

from sessiondb.blobs import BlobStore
from sessiondb.entries import current_entries, read_header
from sessiondb.errors import DatabaseUnavailableError, ExportExistsError, UnknownFormError
from sessiondb.files import make_folder
from sessiondb.jsonl import UNSET, encode_entry, is_outdated
from sessiondb.places import file_name, folder_for_cwd
from sessiondb.rows import read_original_slots, read_slots
from sessiondb.sessions import SessionInfo

Form = Literal["as-is", "original", "current"]
FORMS: Final = get_args(Form)

WRITE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class ExportReport:
    """What an export of many sessions wrote. `renamed`: files whose wanted name was taken, with the name they got."""

    folder: str
    files: int = 0
    bytes_written: int = 0
    blobs: int = 0
    renamed: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    missing_blobs: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as one JSON document."""
        pairs = {name: [list(pair) for pair in getattr(self, name)] for name in ("renamed", "refused")}
        return asdict(self) | pairs


def session_bytes(db: apsw.Connection, info: SessionInfo, form: Form = "as-is") -> Iterator[bytes]:
    """The session's file in pieces.

    `as-is`: the bytes as they are now, with what was appended since the import, or as a rewrite left them. `original`:
    exactly the imported bytes. `current`: what the client itself would write after migrating the file to version 3; for
    one that needs no migration it rewrites nothing, so these are the bytes as they are.
    """
    if form not in FORMS:
        raise UnknownFormError(form, FORMS)
    if form == "original":
        return read_original_slots(db, info.pk)
    if form == "current":
        header = read_header(db, info.pk)
        if header is not None and is_outdated(header.get("version", UNSET)):
            return (encode_entry(entry) + b"\n" for entry in current_entries(db, info.pk))
    return read_slots(db, info.pk)


def write_session(db: apsw.Connection, info: SessionInfo, out: Path | BinaryIO, form: Form, *, force: bool) -> int:
    """Write the session to a path, atomically, or into an open binary stream; the number of bytes is returned.

    A file that is there is replaced only with `force`, else ExportExistsError.
    """
    pieces = session_bytes(db, info, form)
    if isinstance(out, Path):
        return write_file(out, pieces, force=force)
    return _pump(out, pieces)


def write_all(
    db: apsw.Connection, infos: Iterable[SessionInfo], folder: Path, form: Form, *, force: bool
) -> ExportReport:
    """Recreate an agent's folder: sessions/FOLDER-OF-CWD/NAME.jsonl, and blobs/HASH.

    A name that two sessions want goes to the first; the next gets -2, -3 … and is listed. A file that was there before
    is refused and listed unless `force`.
    """
    report = ExportReport(str(folder))
    taken: dict[str, int] = {}
    hashes: set[str] = set()
    store = BlobStore(db)
    for info in infos:
        wanted = _place(db, info)
        relative = _free_name(wanted, taken)
        if relative != wanted:
            report.renamed.append((str(wanted), str(relative)))
        try:
            written = write_file(folder / relative, session_bytes(db, info, form), force=force)
        except ExportExistsError as error:
            report.refused.append((str(relative), str(error)))
            continue
        report.files += 1
        report.bytes_written += written
        report.missing_blobs += [f"{info.id}: {digest}" for digest in store.missing(info.pk)]
        for digest, content in store.of_session(info.pk):
            if digest not in hashes:
                hashes.add(digest)
                _write_blob(folder / "blobs" / digest, content, report, force=force)
    return report


def _place(db: apsw.Connection, info: SessionInfo) -> Path:
    header = read_header(db, info.pk)
    stamp = header.get("timestamp") if header else None
    name = file_name(info.id, stamp if isinstance(stamp, str) else None)
    return Path("sessions", folder_for_cwd(info.cwd, info.dialect), name)


def _free_name(wanted: Path, taken: dict[str, int]) -> Path:
    """The name, or the first with a number behind that nobody has; `taken` says how often each was wanted.

    Names that differ in case alone are one: the folder may be carried to a disk where they are.
    """
    free = wanted
    while _folded(free) in taken:
        taken[_folded(wanted)] += 1
        free = wanted.with_name(f"{wanted.name.removesuffix('.jsonl')}-{taken[_folded(wanted)]}.jsonl")
    taken[_folded(free)] = 1
    return free


def _folded(path: Path) -> str:
    return unicodedata.normalize("NFC", str(path)).casefold()


def _write_blob(path: Path, content: bytes, report: ExportReport, *, force: bool) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    try:
        write_file(path, [content], force=force)
        report.blobs += 1
    except ExportExistsError as error:  # the name of these bytes, and other bytes
        report.refused.append((f"blobs/{path.name}", str(error)))


def write_file(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    """Put the pieces at `path`, mode 0600: a temporary file beside it, fsync, then the name. All or nothing.

    Folders that are missing are made, mode 0700. Raises ExportExistsError when the path is taken and not `force`.
    """
    if not force and os.path.lexists(path):
        raise ExportExistsError(path)
    if os.path.lexists(path) and not path.is_file():
        raise DatabaseUnavailableError(f"{path} is no regular file and was left as it is; choose another name")
    try:
        make_folder(path.parent)
        temporary = path.parent / f".{path.name[:200]}.{secrets.token_hex(6)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise DatabaseUnavailableError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            written = _pump(stream, pieces)
            os.fsync(stream.fileno())
        _take_name(temporary, path, force=force)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return written


def _take_name(temporary: Path, path: Path, *, force: bool) -> None:
    if force:
        temporary.replace(path)
        return
    try:
        os.link(temporary, path)  # unlike a rename, it fails when somebody took the name meanwhile
    except FileExistsError:
        raise ExportExistsError(path) from None
    except OSError:  # a file system without hard links
        temporary.rename(path)
    else:
        temporary.unlink()


def _pump(stream: BinaryIO | Any, pieces: Iterable[bytes]) -> int:
    """Write the pieces in large writes."""
    written = 0
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            _write_whole(stream, b"".join(waiting))
            written, size = written + size, 0
            waiting.clear()
    _write_whole(stream, b"".join(waiting))
    return written + size


def _write_whole(stream: BinaryIO | Any, content: bytes) -> None:
    # An unbuffered stream may take less than it was given, on a disk that is nearly full for one.
    view = memoryview(content)
    while view:
        view = view[stream.write(view) :]
