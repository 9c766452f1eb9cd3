"""House rules of the source: which folder may import which, and what appears nowhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "schema": set(),
    "jsonl": {"schema"},
    "engine": {"engine", "jsonl", "schema"},
    "engine/cli": {"engine", "engine/cli", "jsonl", "schema"},
    "migrations": set(),
}
FILES = sorted(p for folder in ("schema", "jsonl", "engine", "migrations") for p in (ROOT / folder).rglob("*.py"))


def folder_of_file(path: Path) -> str:
    top = path.relative_to(ROOT).parts[:2]
    return "engine/cli" if top == ("engine", "cli") else top[0]


def folder_of_module(name: str) -> str | None:
    head, _, rest = name.partition(".")
    if head != "sessiondb":
        return None
    first = rest.partition(".")[0]
    return {"jsonl": "jsonl", "schema": "schema", "migrations": "migrations", "cli": "engine/cli"}.get(first, "engine")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    here = folder_of_file(path)
    allowed = MAY_IMPORT[here] | {here}
    folders = {folder_of_module(name) for name in imported(path)} - {None}
    if here == "engine" and path.name == "upgrade.py":
        allowed = allowed | {"migrations"}
    assert folders <= allowed | ({"engine"} if here == "engine/cli" else set())


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sqlite3_is_imported_nowhere(path: Path) -> None:
    assert not {name for name in imported(path) if name.partition(".")[0] == "sqlite3"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_connection_opens_databases_and_only_the_cli_prints(path: Path) -> None:
    calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    name = str(path.relative_to(ROOT))
    if name not in ("engine/connection.py", "engine/dbapi.py"):  # dbapi: for engines that users make from a URL
        assert "apsw.Connection" not in calls
    if folder_of_file(path) != "engine/cli":
        assert "print" not in calls


def test_the_top_level_holds_what_the_contract_lists() -> None:
    allowed = {
        "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile", ".gitignore", ".ci",
        "engine", "jsonl", "schema", "migrations", "tests",
    }  # fmt: skip
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {p.name for p in ROOT.iterdir()} - ignored - {".git", "sessiondb.egg-info"} <= allowed


def test_every_test_file_that_a_document_names_is_there() -> None:
    for document in ("README.md", "engine/DESIGN.md", "schema/SCHEMA.md", "jsonl/FORMAT.md"):
        for name in re.findall(r"`(test_\w+)`", (ROOT / document).read_text()):
            assert (ROOT / "tests" / f"{name}.py").exists(), f"{document}: {name}"
