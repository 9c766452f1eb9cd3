"""Where sessions go: the folders of each dialect held against the recorded ones, and the breadcrumbs of terminals."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from sessiondb.breadcrumbs import current_terminal, read_breadcrumb, terminal_id, write_breadcrumb
from sessiondb.places import agent_dir_of, client_folder, folder_for_cwd, session_dir_for, session_dirs_for
from tests.conftest import SHARED
from tests.support import header, write

DIALECTS = ("pi", "xcsh", "omp")
RECORDED = SHARED / "reference/extra/cwd-dirs.json"
CLIENTS = {
    "pi": ("@mariozechner/pi-coding-agent", "0.73.1"),
    "omp": ("@oh-my-pi/pi-coding-agent", "18.2.3"),
    "xcsh": ("@f5-sales-demo/xcsh (harness)", "19.54.0"),
}


def recorded_folders(dialect: str) -> dict[str, str]:
    if not RECORDED.exists():
        pytest.skip("needs the reference folder beside the repository")
    name, version = CLIENTS[dialect]
    recorded = json.loads(RECORDED.read_text())
    (folders,) = [r["dirs"] for r in recorded if (r["client"], r["version"]) == (name, version)]
    return dict(folders)


def test_every_recorded_folder_of_pi_is_named_alike() -> None:
    recorded = recorded_folders("pi")
    assert {cwd: client_folder(cwd, "pi") for cwd in recorded} == recorded


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
def test_every_recorded_absolute_folder_is_named_alike(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home and temporary folder as on the recording machine; none of the paths exists here but those two and `/`."""
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")  # noqa: S108 - only its name is used
    recorded = {c: name for c, name in recorded_folders(dialect).items() if c.startswith("/") and "link" not in c}
    assert len(recorded) == 18
    assert {cwd: client_folder(cwd, dialect) for cwd in recorded} == recorded


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
def test_every_recorded_relative_or_linked_folder_is_named_alike(
    dialect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Recorded in /tmp/cwd-dirs, which holds a link to `real dir`; a folder of this test stands for that /tmp."""
    here = tmp_path / "cwd-dirs"
    (here / "real dir").mkdir(parents=True)
    (here / "link").symlink_to("real dir")
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    recorded = {c: name for c, name in recorded_folders(dialect).items() if "link" in c or not c.startswith("/")}
    assert len(recorded) == 5
    named = {cwd: client_folder(cwd.replace("/tmp/", f"{tmp_path}/"), dialect) for cwd in recorded}  # noqa: S108
    assert named == recorded


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
def test_links_to_home_and_to_the_temporary_folder_make_no_difference(
    dialect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("home/proj", "temp/x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "h").symlink_to("home")
    (tmp_path / "t").symlink_to("temp")
    monkeypatch.setenv("HOME", str(tmp_path / "h"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    cases = {"home/proj": "-proj", "h/proj": "-proj", "h": "-", "temp/x": "-tmp-x", "t/x": "-tmp-x", "t": "-tmp"}
    assert {path: client_folder(str(tmp_path / path), dialect) for path in cases} == cases


def test_where_the_path_does_not_exist_no_link_in_it_is_resolved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in Node, whose realpath gives up at the first missing part."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    missing = tmp_path / "link/missing"
    assert client_folder(str(missing), "xcsh") == client_folder(str(missing), "pi")


def test_a_child_whose_name_starts_with_two_dots_counts_as_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert client_folder(str(tmp_path / "..x"), "omp") == client_folder(str(tmp_path / "..x"), "pi")


def test_a_new_session_of_xcsh_goes_where_its_document_says(tmp_path: Path) -> None:
    project = str(Path.home() / "proj")
    folder = session_dir_for(project, "xcsh", tmp_path)
    assert folder == tmp_path / "sessions" / client_folder(project, "pi")
    assert folder != tmp_path / "sessions" / client_folder(project, "xcsh")
    assert session_dir_for("/srv/x/", "xcsh", tmp_path).name == "--srv-x--"


def test_a_new_session_of_xcsh_goes_into_the_client_s_folder_when_that_exists(tmp_path: Path) -> None:
    project = str(Path.home() / "proj")
    (tmp_path / "sessions/-proj").mkdir(parents=True)
    assert session_dir_for(project, "xcsh", tmp_path) == tmp_path / "sessions/-proj"
    assert session_dir_for(project + "2", "xcsh", tmp_path).name == client_folder(project + "2", "pi")


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_a_new_session_of_pi_and_omp_goes_where_the_client_puts_it(dialect: str, tmp_path: Path) -> None:
    for cwd in (str(Path.home() / "proj"), "/srv/x/"):
        assert session_dir_for(cwd, dialect, tmp_path) == tmp_path / "sessions" / client_folder(cwd, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_asking_for_a_folder_makes_none(dialect: str, tmp_path: Path) -> None:
    agent = agent_dir_of(dialect, tmp_path / "agent")
    session_dir_for("/srv/x", dialect, agent)
    session_dirs_for("/srv/x", dialect, agent)
    assert list(tmp_path.iterdir()) == []


def test_sessions_of_a_cwd_are_looked_for_under_every_name_it_may_have(tmp_path: Path) -> None:
    project = str(Path.home() / "proj")
    names = [folder.name for folder in session_dirs_for(project, "xcsh", tmp_path)]
    assert names == [client_folder(project, "pi"), "-proj"]
    assert [f.name for f in session_dirs_for("/srv/x/", "pi", tmp_path)] == ["--srv-x---", "--srv-x--"]


def test_a_folder_name_longer_than_file_systems_take_is_cut_and_stays_its_own(tmp_path: Path) -> None:
    longest = "/" + "a" * 251
    assert folder_for_cwd(longest, "pi") == client_folder(longest, "pi")
    longer = [folder_for_cwd(longest + end, "pi") for end in "bc"]
    assert longer[0] != longer[1]
    assert max(len(name) for name in longer) <= 255
    assert session_dir_for(longest + "b", "pi", tmp_path).name == longer[0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_agent_s_folder_is_the_one_given_then_the_variable_then_the_one_in_home(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent_dir_of(dialect) == Path.home() / f".{dialect}/agent"
    monkeypatch.setenv("PI_CODING_AGENT_DIR", "~/elsewhere")
    assert agent_dir_of(dialect) == Path.home() / "elsewhere"
    assert agent_dir_of(dialect, "/given") == Path("/given")


# --- breadcrumbs

EVERY_VARIABLE = {"KITTY_WINDOW_ID": "4", "TMUX_PANE": "%3", "TERM_SESSION_ID": "A-B", "WT_SESSION": "w"}


@pytest.mark.parametrize(
    ("environ", "tty", "name"),
    [
        pytest.param(EVERY_VARIABLE, "/dev/pts/3", "pts-3", id="device"),
        pytest.param({}, "/dev/ttys004", "ttys004", id="device of a Mac"),
        pytest.param(EVERY_VARIABLE, None, "kitty-4", id="kitty first"),
        pytest.param({"TMUX_PANE": "%3", "WT_SESSION": "w"}, None, "tmux-%3", id="tmux"),
        pytest.param({"TERM_SESSION_ID": "A-B"}, None, "apple-A-B", id="Terminal.app"),
        pytest.param({"WT_SESSION": "w"}, None, "wt-w", id="Windows Terminal"),
        pytest.param({"KITTY_WINDOW_ID": "", "WT_SESSION": "w"}, None, "wt-w", id="an empty variable names nothing"),
        pytest.param({"TERM_SESSION_ID": "../../x\\y"}, None, "apple-..-..-x-y", id="no way out of the folder"),
        pytest.param({"WT_SESSION": "w"}, "CONIN$", "wt-w", id="no device"),
        pytest.param({}, None, None, id="nothing"),
    ],
)
def test_a_terminal_is_named_by_its_device_or_its_program(
    environ: dict[str, str], tty: str | None, name: str | None
) -> None:
    assert terminal_id(environ, tty) == name


def session_file(folder: Path) -> Path:
    return write(folder / "s.jsonl", header())


def test_a_breadcrumb_leads_back_to_the_session(tmp_path: Path) -> None:
    file = session_file(tmp_path)
    assert write_breadcrumb(tmp_path / "agent", "/proj/été", file, terminal="pts-3") is True
    crumb = tmp_path / "agent/terminal-sessions/pts-3"
    assert crumb.read_text() == f"/proj/été\n{file}\n"
    assert read_breadcrumb(tmp_path / "agent", "/proj/été", terminal="pts-3") == file
    assert read_breadcrumb(tmp_path / "agent", "/proj/sub/../été/", terminal="pts-3") == file


def test_a_breadcrumb_is_its_owner_s_alone_and_replaced_whole(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_breadcrumb(tmp_path / "agent", "/w", tmp_path / "a long name.jsonl", terminal="pts-3")
        write_breadcrumb(tmp_path / "agent", "/w", session_file(tmp_path), terminal="pts-3")
    finally:
        os.umask(before)
    folder = tmp_path / "agent/terminal-sessions"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder / "pts-3")] == [0o700, 0o600]
    assert (folder / "pts-3").read_text() == f"/w\n{tmp_path / 's.jsonl'}\n"
    assert os.listdir(folder) == ["pts-3"]


@pytest.mark.parametrize(
    ("content", "cwd"),
    [
        pytest.param("/w\n{file}\n", "/elsewhere", id="another cwd"),
        pytest.param("/w\n{file}.gone\n", "/w", id="the file is gone"),
        pytest.param("/w\n{folder}\n", "/w", id="it is a folder"),
        pytest.param("/w\n", "/w", id="one line"),
        pytest.param("", "/w", id="empty"),
        pytest.param("/w\n{file}\0\n", "/w", id="a path that cannot be"),
    ],
)
def test_a_breadcrumb_that_does_not_fit_leads_nowhere(content: str, cwd: str, tmp_path: Path) -> None:
    file = session_file(tmp_path)
    write(tmp_path / "terminal-sessions/t", content.format(file=file, folder=tmp_path).encode())
    assert read_breadcrumb(tmp_path, cwd, terminal="t") is None


@pytest.mark.parametrize(
    "content",
    ["/w\n{file}\n", "/w\r\n{file}\r\n", "/w\n{file}\nfresh\n", "/w\n{file}"],
    ids=["as xcsh", "CRLF", "further lines, as omp", "no last newline"],
)
def test_a_breadcrumb_is_read_whatever_its_lines_end_with(content: str, tmp_path: Path) -> None:
    file = session_file(tmp_path)
    write(tmp_path / "terminal-sessions/t", content.format(file=file).encode())
    assert read_breadcrumb(tmp_path, "/w", terminal="t") == file


def test_without_a_terminal_nothing_is_noted_and_nothing_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "ttyname", lambda _: (_ for _ in ()).throw(OSError("no tty")))
    for name in EVERY_VARIABLE:
        monkeypatch.delenv(name, raising=False)
    assert current_terminal() is None
    assert write_breadcrumb(tmp_path / "agent", "/w", session_file(tmp_path)) is False
    assert read_breadcrumb(tmp_path / "agent", "/w") is None
    assert not (tmp_path / "agent").exists()


def test_the_terminal_of_the_process_is_the_one_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "ttyname", lambda _: "/dev/pts/7")
    file = session_file(tmp_path)
    assert write_breadcrumb(tmp_path / "agent", "/w", file) is True
    assert read_breadcrumb(tmp_path / "agent", "/w", terminal="pts-7") == file


@pytest.mark.parametrize(
    ("cwd", "terminal"),
    [("/w\n/x", "t"), ("/w", "t" * 300), ("/w", "t\0")],
    ids=["a path with a newline would be read as two", "a name too long", "a name that cannot be"],
)
def test_a_breadcrumb_that_cannot_be_written_is_none(cwd: str, terminal: str, tmp_path: Path) -> None:
    assert write_breadcrumb(tmp_path, cwd, session_file(tmp_path), terminal=terminal) is False


def test_a_breadcrumb_is_not_written_where_a_file_stands_for_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "terminal-sessions", b"mine")
    assert write_breadcrumb(tmp_path, "/w", session_file(tmp_path), terminal="t") is False
    assert read_breadcrumb(tmp_path, "/w", terminal="t") is None
    assert (tmp_path / "terminal-sessions").read_bytes() == b"mine"


def test_paths_that_are_no_utf8_survive_a_breadcrumb(tmp_path: Path) -> None:
    file = write(tmp_path / os.fsdecode(b"s-\xff.jsonl"), header())
    assert write_breadcrumb(tmp_path, os.fsdecode(b"/w-\xfe"), file, terminal="t") is True
    assert read_breadcrumb(tmp_path, os.fsdecode(b"/w-\xfe"), terminal="t") == file
