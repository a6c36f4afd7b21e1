"""What is typed behind `pit`: its help, its errors and its exit codes, as the seed has them."""

import subprocess
import sys
from pathlib import Path

import pytest

from towline.cli.pit.data.progress import bar
from towline.cli.pit.data.quotas import quota_bytes
from towline.cli.pit.failures import Failed, PitUsage
from towline.cli.pit.running import requested
from towline.cli.pit.typed.grammar import HelpWanted, PitCommand, Typed, read
from towline.cli.pit.typed.names import entity, job_number, properties, with_data
from towline.cli.pit.typed.table import COMMANDS, LATER, named

HERE = Path(__file__).parent


def pit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towline.cli.pit.main", *words]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def typed(command: str, *words: str) -> Typed:
    found = named(command)
    assert found is not None
    return read(found, words)


PAGES = [
    (["--help"], "help.txt"),
    ([], "help.txt"),
    (["run", "--help"], "help-run.txt"),
    (["put", "-h"], "help-run.txt"),
]


@pytest.mark.parametrize(("words", "file"), PAGES)
def test_help_pages_are_those_of_the_seed(tmp_path: Path, words: list[str], file: str) -> None:
    done = pit(tmp_path, *words)
    assert (done.stdout, done.returncode) == ((HERE / file).read_text(), 0)


def test_what_is_not_on_the_seeds_page_is_named_beside_it(tmp_path: Path) -> None:
    said = pit(tmp_path, "--help").stderr
    assert all(command.name in said for command in LATER)


@pytest.mark.parametrize("command", [*COMMANDS, *LATER], ids=lambda one: one.name)
def test_every_command_has_a_page_and_a_function(command: object) -> None:
    from towline.cli.pit.main import _function

    assert isinstance(command, PitCommand)
    assert callable(_function(command))
    page = command.help().split("\n")
    assert page[0] == f"Usage: {command.called} [options] {command.typed_arguments}".rstrip()
    assert page[1:4] == ["", command.about, ""] and page[4] == "Options:"
    with pytest.raises(HelpWanted):
        read(command, ["--help"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "Command failed: unknown command\n"),
        (["stop"], "error: missing required argument `jobNumber'\n"),
        (["run"], "error: missing required argument `title'\n"),
        (["run", "a", "--x"], "error: unknown option `--x'\n"),
        (["--x"], "error: unknown option `--x'\n"),
        (["run", "a", "-c"], "error: option `-c, --continue <jobNumber>' argument missing\n"),
        (["add", "job:1"], 'Command failed: Unknown entity type "job"\n'),
        (["rm", "thing:1"], 'Command failed: Unsupported entity type "thing"\n'),
        (["show", "node:n0:1"], "Command failed: Indices not allowed for node entities\n"),
        (["run", "a", "[gtx1070"], "Command failed: Problem parsing allocation\n"),
    ],
)
def test_errors_are_the_ancestors_and_end_with_1(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = pit(tmp_path, *words)
    assert done.returncode == 1 and done.stderr.startswith(said) and done.stdout == ""


def test_a_near_miss_is_answered_with_what_was_meant(tmp_path: Path) -> None:
    assert "did you mean: pit status" in pit(tmp_path, "statsu").stderr


def test_without_a_connect_file_it_says_where_to_put_one(tmp_path: Path) -> None:
    done = pit(tmp_path, "status")
    assert done.returncode == 1
    assert done.stderr.startswith("Unable to find connectivity info about your pit.\n")


def test_a_server_that_is_not_there_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / ".pitconnect.txt").write_text("https://127.0.0.1:1\n")
    done = pit(tmp_path, "status")
    assert done.stderr.startswith("Command failed: Unable to reach pit: ECONNREFUSED\n")
    assert done.returncode == 1


def test_the_connect_file_of_the_folder_wins_over_that_at_home(tmp_path: Path) -> None:
    (tmp_path / ".pitconnect.txt").write_text("nothing")
    below = tmp_path / "project"
    below.mkdir()
    (below / ".pitconnect.txt").write_text("https://127.0.0.1:1/\n")
    command = [sys.executable, "-m", "towline.cli.pit.main", "status"]
    done = subprocess.run(command, cwd=below, env={"HOME": str(tmp_path)}, capture_output=True)
    assert b"ECONNREFUSED" in done.stderr


def test_options_are_read_as_commander_does() -> None:
    found = typed("run", "-pl", "a title", "-d", "-x; ls", "[]", "--continue=3")
    assert found.words == ["a title", "[]"]
    assert found.options == {"private": "", "log": "", "direct": "-x; ls", "continue": "3"}
    assert typed("stop", "3", "and", "more").words[0] == "3"
    assert typed("add", "user:a", "--", "--odd").words == ["user:a", "--odd"]


@pytest.mark.parametrize(
    "words", [["-w", "1", "190", "--", "ls", "-l"], ["-w1", "190", "ls", "-l"]]
)
def test_the_command_of_exec_keeps_its_options(words: list[str]) -> None:
    if words[0] == "-w1":
        words = ["-w", "1", *words[1:]]
    found = typed("exec", *words)
    assert (found.words, found.rest, found.options) == (["190"], ["ls", "-l"], {"worker": "1"})


def test_entities_and_properties() -> None:
    node = entity("node:n0:1", ("node",), indices=True)
    assert (node.kind, node.name, node.index) == ("node", "n0", 1)
    assert entity("me", ("me",)).kind == "me"
    assert job_number("190") == job_number("job:190") == 190
    assert properties(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for wrong, said in [
        ("user:Anna", "Wrong user id format"),
        ("group:a1", "Wrong group id format"),
    ]:
        with pytest.raises(Failed, match=said):
            entity(wrong, ("user", "group"))
    with pytest.raises(PitUsage):
        properties(["email"])


def test_what_has_data_is_named_by_its_kind_or_a_jobs_number() -> None:
    found = [with_data(one) for one in ("home", "shared", "group:a", "user:a", "job:7", "7")]
    assert [(one.kind, one.name) for one in found] == [
        *(("home", ""), ("shared", ""), ("group", "a"), ("user", "a"), ("job", "7"), ("job", "7")),
    ]
    for wrong in ("node:n0", "alias:a", "attic", "home:x", "group:A", "job:x"):
        with pytest.raises(Failed):
            with_data(wrong)


def test_a_quota_is_a_size_or_none() -> None:
    assert [quota_bytes(one) for one in ("10G", "1m", "none", "0")] == [10 << 30, 1 << 20, 0, 0]
    with pytest.raises(Failed, match="is no size"):
        quota_bytes("lots")


def test_the_bar_of_a_transfer_is_the_ancestors() -> None:
    assert bar("downloading", 45, 100, 20.0) == f"  downloading [{'=' * 18:<40}] 45% 20 B/s 2.8s"
    assert bar("uploading", 0, 0, 0.0).startswith(f"  uploading [{'=' * 40}] 100%")


def test_requests_are_the_ancestors_and_may_name_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for good in ("[]", "2:[8:gtx1070]", "2:[],4:[gtx1070,2:gtx1060]", "[cpus=4,mem=10G]"):
        assert requested(good) == good
    for bad in ("[gtx1070", "gtx1070", "2: [gtx1070]", "[],", "[2:]", "x"):
        with pytest.raises(Failed, match="Problem parsing allocation"):
            requested(bad)
    for nothing in ("", None):
        with pytest.raises(Failed, match="No resources requested from cluster"):
            requested(nothing)
    (tmp_path / ".pitrequest.txt").write_text(" 2:[]\n")
    assert requested(None) == "2:[]"
