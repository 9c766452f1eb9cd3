"""The README's commands and code do what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    programs = Path(sys.executable).parent
    home = tmp_path / "home"
    (home / "old-laptop/sessions").mkdir(parents=True)
    for agent in (".pi", ".omp", ".xcsh", ".openclaw"):
        (home / agent).symlink_to(ROOT / "tests/golden/samples" / agent)
    (home / "old-laptop/sessions/old.jsonl").write_text('{"type":"session","id":"old"}\n')
    return os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(home), "TZ": "UTC",
        "SESSIONDB_DB": str(tmp_path / "s.db"),
    }  # fmt: skip


def run_sh(command: str, environment: dict[str, str], cwd: Path) -> str:
    shell = ["sh", "-euc", command]
    done = subprocess.run(shell, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_session_at_the_top_prints_what_it_shows(environment: dict[str, str]) -> None:
    (shown,) = blocks("console")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", shown, re.MULTILINE)
    assert len(steps) == 7
    for command, output in steps:
        printed = run_sh(command, environment, ROOT)
        assert fnmatch(printed, re.sub(r"([\[?])", r"[\1]", output).replace("…\n", "*")), printed


def test_the_commands_for_use_run(environment: dict[str, str], tmp_path: Path) -> None:
    for line in blocks("sh")[1].splitlines():
        command = line.partition("#")[0].strip()
        assert command.startswith("sessiondb ")
        run_sh(command, environment, tmp_path)
    assert (tmp_path / "one.jsonl").read_bytes().startswith(b'{"type":"session"')


def test_the_commands_of_the_clone_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"make ([a-z-]+)", README)
    assert {"demo", "test", "test-slow", "lint"} <= set(named) <= targets


@pytest.fixture
def run_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[int], str]:
    """Runs one of the examples in Python, by its number from 0, in a folder of its own; what it printed."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)

    def run(number: int) -> str:
        exec(compile(blocks("python")[number], "README.md", "exec"), {})  # noqa: S102 - the example is ours
        return capsys.readouterr().out

    return run


def test_the_python_example_runs(run_example: Callable[[int], str]) -> None:
    printed = run_example(0).splitlines()
    assert printed[0] == "5 imported, 4 damaged lines kept"
    assert printed[-4:-2] == ["session_info Checkout off by one cent", "True"]
    assert printed[-2].startswith("019b8d3a-5c00-7a11-8c5e-1f2d3b4a5c6d c14c65aa Rounding each line moves the error")
    assert printed[-1] == "[{'answers': 15}]"


def test_the_example_of_a_live_session_runs(run_example: Callable[[int], str]) -> None:
    assert run_example(1) == "['user', 'assistant'] go to the model; 3 entries are kept\n"


def test_the_example_of_a_host_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_example: Callable[[int], str]
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    assert run_example(2) == "22 entries on the screen\n"
    assert asked == [f"/srv/shop is gone. Go on in {tmp_path}? "]
    assert len(list((tmp_path / "sessions").iterdir())) == 1


def test_every_python_example_is_run() -> None:
    assert len(blocks("python")) == 3


def test_the_demo_runs(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    programs = os.path.relpath(Path(sys.executable).parent, tmp_path)
    printed = run_sh("sh tests/demo.sh", environment | {"BIN": programs}, tmp_path)
    assert "equal            5" in printed
    assert len(list((tmp_path / "demo/out/sessions").rglob("*.jsonl"))) == 5


def test_every_link_leads_to_a_file() -> None:
    for document in ("README.md", "engine/DESIGN.md", "schema/SCHEMA.md", "jsonl/FORMAT.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text()):
            assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"
