"""Images that sessions refer to come along, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiondb import Store
from tests.support import (
    header,
    sha,
    with_blobs,
    write,
)


@pytest.mark.parametrize("blob_folder", ["agent/blobs", "agent/sessions/--w--/blobs"], ids=["agent's", "beside"])
def test_blobs_that_a_session_refers_to_come_along(store: Store, tmp_path: Path, blob_folder: str) -> None:
    content, other = b"\x89PNG picture", b"nobody refers to this"
    write(tmp_path / blob_folder / sha(content), content)
    write(tmp_path / blob_folder / sha(other), other)
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(sha(content)))
    report = store.import_paths([tmp_path / "agent"])
    assert (report.imported, report.blobs, report.missing_blobs) == (1, 1, [])
    assert store.blobs.get(sha(content)) == content
    assert store.blobs.get(sha(other)) is None


def test_only_64_lower_case_hex_digits_are_ever_followed(store: Store, tmp_path: Path) -> None:
    content = b"secret"
    digest = sha(content)
    suffixes = [
        "../../secret",
        "../blobs/" + digest,
        digest.upper(),
        digest[:63],
        digest + "0",
        sha(b"nowhere") + "/../../secret",
        digest[:62] + "..",
        "/etc/passwd",
        "",
        digest[:-1] + "g",
    ]
    agent = tmp_path / "agent"
    for name in ("blobs/" + digest, "secret", "sessions/secret", *("blobs/" + s for s in suffixes if s.isalnum())):
        write(agent / name, content)
    write(agent / "sessions/--w--/s.jsonl", header(), with_blobs(*suffixes))
    report = store.import_paths([agent])
    assert (report.imported, report.blobs) == (1, 0)
    assert store.sql("SELECT count(*) AS n FROM blob") == [{"n": 0}]
    assert store.blobs.get(digest) is None


def test_a_blob_with_another_s_name_is_not_taken(store: Store, tmp_path: Path) -> None:
    digest = sha(b"right")
    write(tmp_path / "agent/blobs" / digest, b"wrong")
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(digest))
    report = store.import_paths([tmp_path / "agent"])
    assert (report.imported, report.blobs, len(report.missing_blobs)) == (1, 0, 1)
    assert store.blobs.get(digest) is None


def test_a_blob_that_is_no_regular_file_does_not_stop_the_import(store: Store, tmp_path: Path) -> None:
    fifo, folder = sha(b"fifo"), sha(b"folder")
    (tmp_path / "agent/blobs" / folder).mkdir(parents=True)
    os.mkfifo(tmp_path / "agent/blobs" / fifo)
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(fifo, folder))
    report = store.import_paths([tmp_path / "agent"])
    assert (report.imported, report.blobs, len(report.missing_blobs)) == (1, 0, 2)


def test_a_blob_that_comes_later_is_taken_by_the_next_import(store: Store, tmp_path: Path) -> None:
    content = b"late picture"
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(sha(content)))
    first = store.import_paths([tmp_path / "agent"])
    assert (first.imported, first.blobs, len(first.missing_blobs)) == (1, 0, 1)
    write(tmp_path / "agent/blobs" / sha(content), content)
    second = store.import_paths([tmp_path / "agent"])
    assert (second.imported, second.unchanged, second.blobs, second.missing_blobs) == (0, 1, 1, [])
    assert store.blobs.get(sha(content)) == content
