"""Writes session files for tests, and reads back what a store gives."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sessiondb import Store
from sessiondb.exporter import Form
from sessiondb.report import ImportReport
from sessiondb.sessions import SessionInfo

GOLDEN_ROOT = Path(__file__).resolve().parent / "golden"
GOLDEN = GOLDEN_ROOT / "jsonl"
BUGCASES = GOLDEN / "bugcases"

OpenStore = Callable[..., Store]


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def header(session_id: str = "s-1", **more: object) -> bytes:
    base = {"type": "session", "version": 3, "id": session_id, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    return dump({**base, **more})


def entry(
    number: int, parent: int | None = None, text: object = "hi", *, role: str = "user", second: int = 1, **more: object
) -> bytes:
    base = {
        "type": "message",
        "id": f"{number:08x}",
        "parentId": None if parent is None else f"{parent:08x}",
        "timestamp": f"2026-01-01T00:00:{second:02d}.000Z",
        "message": {"role": role, "content": text},
    }
    return dump({**base, **more})


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def exported(store: Store, ref: str | Path | SessionInfo, form: Form = "as-is") -> bytes:
    out = io.BytesIO()
    store.export(ref, out, form)
    return out.getvalue()


def tables(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, but for the text index, whose pages tell in which order it was written."""
    names = store.sql(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%_fts%' ORDER BY name"
    )  # fmt: skip
    return {n["name"]: sorted(store.sql(f'SELECT * FROM "{n["name"]}"'), key=repr) for n in names}


def without_last_look(dumped: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """All rows but the one that says when files were last looked at, which is about the run and not the sessions."""
    return {**dumped, "state": [row for row in dumped["state"] if row["name"] != "last look"]}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def skipped(report: ImportReport) -> list[str]:
    assert all(s.reason for s in report.skipped)
    return sorted(s.path for s in report.skipped)


def with_blobs(*references: str) -> bytes:
    blocks = [{"type": "image", "mimeType": "image/png", "data": f"blob:sha256:{r}"} for r in references]
    return entry(7, None, blocks)


def derived(session_id: str, line: int) -> str:
    return hashlib.sha256(session_id.encode() + b"\0" + str(line).encode()).hexdigest()[:8]


CASE_23 = (
    '{"type":"message","timestamp":"2025-01-01T00:00:01.000Z","message":{"role":"user","content":"one","timestamp":1},'
    '"id":"00000001","parentId":null}\n'
    '{"type":"message","timestamp":"2025-01-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text",'
    '"text":"1"}],"provider":"p","model":"m","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"cost":'
    '{"total":0}},"timestamp":2},"id":"00000002","parentId":"00000001"}\n'
    '{"type":"compaction","timestamp":"2025-01-01T00:00:03.000Z","summary":"S","tokensBefore":9,"id":"00000003",'
    '"parentId":"00000002","firstKeptEntryId":"00000002"}\n'
    '{"type":"message","timestamp":"2025-01-01T00:00:04.000Z","message":{"role":"custom","customType":"h","content":'
    '"hook","display":true,"timestamp":4},"id":"00000004","parentId":"00000003"}\n'
)
"""The entries of reference case 23 as pi, pi 1.6 and xcsh migrate them, with the reference's counted ids."""
