"""A project's file is somebody else's program until the user trusts it."""

import json
from pathlib import Path

import pytest

from e2e.jobs import complaint, configure, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.terminal import Terminal
from testbed.tow import Tow

SETUP = "[defaults]\nsetup = 'echo from the project'\nenv = { COLOUR = 'green' }\n"
ELSEWHERE = (
    "default_cluster = 'other'\n[clusters.other]\nmachines = [{ ssh = 'this', name = 'there' }]\n"
)
UNTRUSTED = "wants to decide what runs where, and you have not trusted it"


def write(tow: Tow, text: str) -> Path:
    file = tow.folder / "towline.toml"
    file.write_text(text)
    return file


def nothing_was_done(tow: Tow) -> bool:
    return bool(tow.json("status", "--all")["jobs"] == [])


def test_nothing_that_decides_what_runs_where_is_done_without_trust(tow: Tow) -> None:
    file = write(tow, ELSEWHERE)
    (tow.folder / "commands.txt").write_text("true\n")
    (tow.folder / "list.txt").write_text("true\n")
    for words in (
        ["run", "true"],
        ["run", "-d", "true"],
        ["run", "--dry-run", "true"],
        ["run", "-c", "local", "true"],
        ["batch", "commands.txt"],
        ["batch", "-d", "commands.txt"],
        ["batch", "--dry-run", "commands.txt"],
        ["machines"],
        ["clusters"],
        ["doctor"],
    ):
        said = complaint(tow(*words), 2)
        assert f"{file} {UNTRUSTED}" in said, words
        assert "type: tow trust" in said
    assert nothing_was_done(tow)


@pytest.mark.parametrize(
    "typed",
    [
        "execute_batch --no-gpu-required --memory-required=10 --machines m.yaml -- list.txt",
        "execute_remote --machine m.yaml true",
        "execute_to true --machines m.yaml",
        "submit -c=there.json true",
    ],
)
def test_commands_of_older_systems_need_trust_as_well(tow: Tow, typed: str) -> None:
    write(tow, SETUP)
    (tow.folder / "list.txt").write_text("true\n")
    (tow.folder / "m.yaml").write_text("ip: nowhere.invalid\n")
    (tow.folder / "there.json").write_text('{"host": "nowhere.invalid"}')
    name, *words = typed.split()
    compatible = Tow(tow.home, Path("/dev/null"), tow.folder)
    compatible.program = [*tow.program[:2], f"towline.cli.compat.{name}"]
    done = compatible(*words)
    assert UNTRUSTED in done.stderr
    assert done.returncode == 2
    assert nothing_was_done(tow)


def test_trusted_file_counts_until_it_changes(tow: Tow) -> None:
    file = tow.trusting(SETUP)
    done = tow("run", "sh", "-c", "echo $COLOUR")
    assert done.stdout == "from the project\ngreen\n"
    file.write_text(SETUP.replace("green", "red"))
    assert UNTRUSTED in complaint(tow("run", "true"), 2)
    assert f"trusted: {file}" in tow("trust").stdout
    assert tow("run", "sh", "-c", "echo $COLOUR").stdout.endswith("red\n")
    assert [one["file"] for one in tow.json("trust", "--list")["trusted"]] == [str(file)] * 2
    assert str(file) in tow("trust", "--revoke").stdout
    assert UNTRUSTED in complaint(tow("run", "true"), 2)
    assert "was not trusted" in complaint(tow("trust", "--revoke"), 2)


def test_what_travels_counts_without_trust(tow: Tow) -> None:
    write(tow, "[snapshot]\nexclude = ['secret']\n")
    (tow.folder / "secret").write_text("x")
    assert tow("run", "sh", "-c", "ls").stdout == "towline.toml\n"
    assert "needs no trust" in tow("trust").stdout
    job = submit(tow, "--no-results", "true")
    write(tow, "[snapshot]\nexclude = ['secret']\n" + SETUP)
    assert tow("diff", "--names", str(job)).stdout == "M towline.toml\n"


def test_person_at_a_terminal_is_asked_once(tow: Tow) -> None:
    write(tow, ELSEWHERE + SETUP)
    with Terminal(tow, "run", "sh", "-c", "echo $COLOUR") as terminal:
        terminal.sees("Trust it, until it changes? [y/N]")
        for wish in ("jobs run on        other", "this (name=there)", "echo from the project"):
            assert wish in terminal.seen
        assert "COLOUR=green" in terminal.seen
        terminal.types("y\n")
        assert terminal.leaves() == 0
        assert "green" in terminal.seen and "on there" in terminal.seen
    with Terminal(tow, "run", "true") as terminal:
        assert terminal.leaves() == 0
        assert "Trust it" not in terminal.seen


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (["batch", "--json", "commands.txt"], "there"),
        # This machine has a name already, under which it is shown once.
        (["machines"], "other"),
        (["run", "--dry-run", "true"], "there"),
    ],
)
def test_whatever_uses_the_file_first_asks_and_then_goes_on(
    tow: Tow, words: list[str], then: str
) -> None:
    write(tow, ELSEWHERE)
    (tow.folder / "commands.txt").write_text("true\n")
    with Terminal(tow, *words) as terminal:
        terminal.sees("[y/N]")
        terminal.types("yes\n")
        assert terminal.leaves() == 0
        assert then in terminal.seen.partition("[y/N]")[2]


def test_person_who_does_not_trust_it_has_run_nothing(tow: Tow) -> None:
    write(tow, ELSEWHERE)
    for words in (["run", "true"], ["run", "-d", "true"]):
        for answer in ("n\n", "\n", "\x04"):
            with Terminal(tow, *words) as terminal:
                terminal.sees("[y/N]")
                terminal.types(answer)
                assert terminal.leaves() == 2
                assert UNTRUSTED in terminal.seen
    assert nothing_was_done(tow)


def test_file_that_changes_while_the_person_reads_is_not_trusted(tow: Tow) -> None:
    write(tow, SETUP)
    with Terminal(tow, "run", "true") as terminal:
        terminal.sees("[y/N]")
        write(tow, SETUP.replace("from the project", "something else"))
        terminal.types("y\n")
        assert terminal.leaves() == 1
        assert "has just changed" in terminal.seen
    assert tow.json("trust", "--list")["trusted"] == []
    assert nothing_was_done(tow)


def test_file_that_cannot_be_used_is_not_trusted_either(tow: Tow) -> None:
    configure(tow, more="[clusters.lab]\nmachines = ['gpu1']\n")
    write(tow, "[clusters.lab]\nmachines = ['gpu2']\n")
    for words in (["trust"], ["run", "true"]):
        assert "`clusters.lab` is a cluster of your own" in complaint(tow(*words), 2)
    assert "not trusted" in tow("trust", "--show").stdout


def test_wishes_are_shown_without_what_steers_the_terminal(tow: Tow) -> None:
    write(tow, '[defaults]\nsetup = "evil\\u001b[2K\\rnice"\n')
    shown = tow("trust", "--show").stdout
    assert "\x1b" not in shown and "\r" not in shown and "evil" in shown
    found = tow.json("trust", "--show")
    assert found["trusted"] is False and "setup" in found["settings"]["defaults"]


def test_two_projects_with_one_name_for_different_clusters_do_not_mix_their_jobs(
    tow: Tow, tmp_path: Path
) -> None:
    folders = {name: tmp_path / name for name in ("one", "two")}
    for name, folder in folders.items():
        folder.mkdir()
        text = f"[clusters.field]\nmachines = [{{ ssh = 'this', name = '{name}' }}]\n"
        tow.trusting(text, folder)
    first = submit(tow, "-c", "field", "sleep", "300", cwd=folders["one"])
    wait_for(tow, first, "running")
    said = complaint(tow("run", "-c", "field", "true", cwd=folders["two"]), 2)
    assert "the cluster 'field' is another one" in said
    assert all(str(folder / "towline.toml") in said for folder in folders.values())
    assert tow("stop", str(first)).returncode == 0
    ended(tow, first)
    second = submit(tow, "-c", "field", "true", cwd=folders["two"])
    assert ended(tow, second)["machines"] == ["two"]


@pytest.mark.real
def test_machine_with_a_new_address_is_the_new_one_at_once_and_what_runs_stays(
    tow: Tow, hosts: Hosts
) -> None:
    def points_to(host: str) -> None:
        configure(tow, more=f"[clusters.lab]\nmachines = [{{ ssh = '{host}', name = 'gpu' }}]\n")

    points_to("h1")
    first = submit(tow, "-c", "lab", "sleep", "300")
    wait_for(tow, first, "running")
    points_to("h2")
    assert tow("run", "-c", "lab", "hostname").stdout == "h2\n"
    assert tow("machines").returncode == 0
    assert show(tow, first)["state"] == "running"
    assert tow("stop", str(first)).returncode == 0
    ended(tow, first)
    # Nothing was restarted in between.
    assert tow("run", "-c", "lab", "hostname").stdout == "h2\n"
    points_to("h1")
    assert tow("run", "-c", "lab", "hostname").stdout == "h1\n"


@pytest.mark.real
def test_file_of_one_folder_never_sends_the_jobs_of_another_elsewhere(
    tow: Tow, hosts: Hosts, tmp_path: Path
) -> None:
    configure(tow, "h1")
    cloned = tmp_path / "cloned"
    cloned.mkdir()
    for theirs in (
        '[clusters.lab]\nmachines = [{ ssh = "h2", name = "h1" }]\n',
        '[clusters.theirs]\nmachines = [{ ssh = "h2", name = "h1" }]\n',
    ):
        (cloned / "towline.toml").write_text(theirs)
        for words in (["machines"], ["run", "-c", "lab", "true"], ["trust"]):
            assert "your own" in complaint(tow(*words, cwd=cloned), 2)
    done = tow("run", "-c", "lab", "-e", "TOKEN=abc", "hostname")
    assert json.loads(tow("show", "last", "--json").stdout)["machines"] == ["h1"]
    assert done.stdout == "h1\n"
