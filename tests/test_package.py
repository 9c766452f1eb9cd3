"""The wheel, alone in a fresh environment, is the whole product."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = next((ROOT / "tests/golden/samples/.pi/agent/sessions/--srv-shop--").glob("*.jsonl"))


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, out: Path) -> Path:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, source, cwd=source)
    (wheel,) = out.glob("*.whl")
    return wheel


def copy_of_the_source(target: Path) -> Path:
    """A copy, so that building leaves no build folder in the tree."""
    files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, files):
        if not name.startswith("tests/") and (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())
    return target


@pytest.mark.slow  # builds twice and installs from the package index
def test_the_wheel_installs_alone_and_imports_a_session(tmp_path: Path) -> None:
    source = copy_of_the_source(tmp_path / "source")
    wheel = build(source, tmp_path / "dist")
    names = zipfile.ZipFile(wheel).namelist()
    assert "sessiondb/schema/session-v3.schema.json" in names
    assert {name.partition("/")[0] for name in names} == {"sessiondb", f"{wheel.name.split('-py3')[0]}.dist-info"}
    packaged = {n for n in names if n.endswith(".py")}
    for folder in ("engine", "jsonl", "schema", "migrations"):
        package = "sessiondb" if folder == "engine" else f"sessiondb/{folder}"
        for file in (source / folder).rglob("*.py"):
            assert f"{package}/{file.relative_to(source / folder)}" in packaged

    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    before = {p.name for p in next(environment.glob("lib/*/site-packages")).iterdir()}
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-deps", wheel, cwd=tmp_path)
    after = {p.name for p in next(environment.glob("lib/*/site-packages")).iterdir()}
    assert after - before == {"sessiondb", f"{wheel.name.split('-py3')[0]}.dist-info"}
    run(*pip, "--constraint", ROOT / ".ci/constraints.txt", wheel, cwd=tmp_path)

    program, database = environment / "bin/sessiondb", tmp_path / "s.db"
    run(program, "--db", database, "import", SAMPLE, cwd=tmp_path)
    assert run(program, "--db", database, "export", SAMPLE, cwd=tmp_path).encode() == SAMPLE.read_bytes()
    run(program, "--db", database, "verify", cwd=tmp_path)


@pytest.mark.slow  # builds three times
def test_the_source_archive_builds_the_same_wheel(tmp_path: Path) -> None:
    source = copy_of_the_source(tmp_path / "source")
    direct = zipfile.ZipFile(build(source, tmp_path / "direct")).namelist()
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", tmp_path / "sdist", source, cwd=source)
    (archive,) = (tmp_path / "sdist").glob("*.tar.gz")
    run("tar", "xzf", archive, "-C", tmp_path, cwd=tmp_path)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    assert sorted(zipfile.ZipFile(build(unpacked, tmp_path / "again")).namelist()) == sorted(direct)
