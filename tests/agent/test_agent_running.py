"""A command runs as it was typed, where it should, and its ending is told in full."""

import json
import os
import signal
from pathlib import Path

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import AgentError, Driver

SHOW = "import os, sys; print(ascii([os.fsencode(a) for a in sys.argv[1:]]))"

#: Shows blocked and ignored signals; 32 and 33 belong to the C library, and nobody can reset them.
NOT_DEFAULT = r"grep -E '^Sig(Blk|Ign)' /proc/self/status | grep -vE '\s0000000[01][08]0000000$'"


def test_one_job_that_is_refused_does_not_keep_others_of_the_same_message_from_starting(
    agent: Driver,
) -> None:
    good = {"argv": ["sh", "-c", "exit 3"]}
    bad = [
        {"key": "odd", "argv": ["true"], "links": {"data/": "/datasets"}},
        {"key": "up", "argv": ["true"], "cwd": "../x"},
        {"key": "words", "argv": "true"},
        {"key": "../x", "argv": ["true"]},
        5,
    ]
    answer = agent.call("start", jobs=[{"key": "a", **good}, *bad, {"key": "b", **good}])
    assert answer["accepted"] == ["a", "b"]
    assert list(answer["refused"]) == ["odd", "up", "words", "../x", "5"]
    assert "data/" in answer["refused"]["odd"]["text"]
    assert agent.end_of("a", "b")["code"] == 3
    assert agent.call("observe", keys=["odd"])["states"]["odd"] == {"state": "unknown"}


def test_hello_says_what_the_other_side_must_know(agent: Driver, root: Path) -> None:
    hello = agent.hello
    assert hello["protocol"] == 1
    assert hello["root"] == str(root)
    assert hello["cpus"] == len(os.sched_getaffinity(0))
    assert hello["pid"] == agent.process.pid
    assert hello["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert root.stat().st_mode & 0o777 == 0o700


def test_address_is_the_one_ssh_was_reached_at(new_agent: NewAgent) -> None:
    agent = new_agent(SSH_CONNECTION="10.0.0.1 5555 10.0.0.2 22")
    assert agent.hello["address"] == "10.0.0.2"


def test_arguments_arrive_exactly_as_typed(agent: Driver) -> None:
    arguments = [
        "a b",
        "",
        "'",
        '"',
        "$HOME",
        "`x`",
        "\\",
        "line\nline",
        "ü 漢 🚀",
        "\udcff\udc80",
        "*",
    ]
    agent.run("a", "python3", "-c", SHOW, *arguments)
    expected = [word.encode("utf-8", "surrogateescape") for word in arguments]
    assert agent.output("a").decode() == ascii(expected) + "\n"


def test_streams_are_kept_apart_and_binary(agent: Driver) -> None:
    script = r"printf '\000\377\n'; printf 'oops' >&2; exit 3"
    end = agent.run("a", "sh", "-c", script)
    assert agent.output("a") == b"\x00\xff\n"
    assert agent.output("a", "err") == b"oops"
    assert (end["code"], end["signal"], end["cause"]) == (3, None, "")
    assert (end["out_size"], end["err_size"]) == (3, 4)
    assert 0 < end["started"] <= end["ended"]


def test_a_signal_is_told_as_one(agent: Driver) -> None:
    end = agent.run("a", "sh", "-c", "kill -SEGV $$")
    assert (end["code"], end["signal"], end["cause"]) == (None, signal.SIGSEGV, "")


def test_environment_is_the_agents_own_plus_the_jobs(new_agent: NewAgent, root: Path) -> None:
    agent = new_agent(FROM_AGENT="yes")
    agent.run("a", "env", env={"MINE": "1 $x\n2"})
    seen = agent.output("a").decode()
    folder = root / "jobs" / "a"
    for line in ("FROM_AGENT=yes", "MINE=1 $x\n2", "PYTHONUNBUFFERED=1"):
        assert line + "\n" in seen
    assert f"JOB_DIR={folder}\n" in seen and f"SRC_DIR={folder}/src\n" in seen


def test_a_given_environment_replaces_the_agents(new_agent: NewAgent) -> None:
    agent = new_agent(FROM_AGENT="yes")
    path = os.environ["PATH"]
    agent.run("a", "env", environ={"PATH": path, "PYTHONUNBUFFERED": "0"}, env={"MINE": "1"})
    names = {line.split("=")[0] for line in agent.output("a").decode().splitlines()}
    assert {"PATH", "MINE", "JOB_DIR", "SRC_DIR", "KEEP_DIR", "TOWLINE_KEY"} <= names
    assert not {"FROM_AGENT", "HOME"} & names
    assert "PYTHONUNBUFFERED=0" in agent.output("a").decode()


def test_command_runs_in_its_subfolder_with_nothing_of_ours_open(agent: Driver, root: Path) -> None:
    agent.run("a", "sh", "-c", "pwd; ls /proc/self/fd | wc -l; readlink /proc/self/fd/0", cwd="x/y")
    where, count, stdin = agent.output("a").decode().split()
    assert where == str(root / "jobs/a/src/x/y")
    assert (count, stdin) == ("4", "/dev/null")  # the fourth is the folder `ls` reads


def test_signals_are_back_to_default_in_the_command(agent: Driver) -> None:
    agent.run("a", "sh", "-c", NOT_DEFAULT)
    assert agent.output("a") == b""


def test_unknown_command_is_named(agent: Driver) -> None:
    end = agent.run("a", "trian.py")
    assert (end["code"], end["cause"]) == (127, "not_found")
    assert end["text"] == "command not found: trian.py"


def test_a_shell_line_as_one_word_gets_a_hint(agent: Driver) -> None:
    end = agent.run("a", "echo hi && ls")
    assert end["cause"] == "not_found"
    assert "tow run -- sh -c 'echo hi && ls'" in end["text"]


def test_path_of_the_job_decides_what_is_found(agent: Driver, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "mytool"
    tool.parent.mkdir()
    tool.write_text("echo no interpreter line\n")
    tool.chmod(0o755)
    end = agent.run("a", "mytool", env={"PATH": f"/nowhere:{tool.parent}:/usr/bin:/bin"})
    assert end["code"] == 0
    assert agent.output("a") == b"no interpreter line\n"


def test_a_file_that_is_not_executable_is_told(agent: Driver, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("echo\n")
    end = agent.run("a", str(script))
    assert (end["code"], end["cause"]) == (126, "not_executable")
    assert f"chmod +x {script}" in end["text"]


def test_a_missing_interpreter_is_told(agent: Driver, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    end = agent.run("a", str(script))
    assert (end["code"], end["cause"]) == (127, "not_found")
    assert "#!/no/such/python" in end["text"]


def test_setup_prepares_and_the_command_stays_as_typed(agent: Driver) -> None:
    setup = 'export GREETING="it works"; f() { echo "args: $#"; }; f; echo "$#"'
    end = agent.run("a", "sh", "-c", 'echo "$GREETING" "$1"', "x", "$A 'b'", setup=setup)
    assert end["code"] == 0
    assert agent.output("a") == b"args: 0\n0\nit works $A 'b'\n"
    assert b"TOWLINE_SETUP" not in agent.output("a")


@pytest.mark.parametrize("setup", ["(exit 7)", "exit 7", "set -e; (exit 7); true"])
def test_a_failed_setup_is_the_cause(agent: Driver, setup: str) -> None:
    end = agent.run("a", "true", setup=setup)
    assert (end["code"], end["cause"]) == (7, "setup")
    assert setup in end["text"]


def test_a_command_that_fails_after_its_setup_is_no_failed_setup(agent: Driver) -> None:
    assert agent.run("a", "sh", "-c", "exit 7", setup="true")["cause"] == ""
    assert agent.run("b", "nope", setup="true")["cause"] == "not_found"


def test_a_held_job_starts_only_when_released(agent: Driver) -> None:
    agent.start("a", "echo", "go", hold=True)
    agent.wait_for(lambda: "a" in agent.held)
    assert agent.state("a") == "held"
    assert "a" not in agent.started
    agent.call("go", keys=["a"])
    assert agent.end_of("a")["code"] == 0


def test_a_held_job_nobody_releases_is_void(agent: Driver) -> None:
    end = agent.run("a", "echo", hold=True, hold_s=0.1)
    assert (end["cause"], end["started"]) == ("void", 0)


def test_exec_runs_beside_the_job_in_its_folder_and_environment(agent: Driver, root: Path) -> None:
    agent.start("a", "sleep", "60", env={"A": "1"}, cwd="sub", setup="export B=2")
    agent.wait_for(lambda: "a" in agent.started)
    agent.call(
        "exec", key="a", new_key="a.x", argv=["sh", "-c", "pwd; echo $A$B$C"], env={"C": "3"}
    )
    assert agent.end_of("a.x")["code"] == 0
    assert agent.output("a.x").decode() == f"{root}/jobs/a/src/sub\n123\n"
    assert agent.state("a") == "running"
    agent.call("stop", keys=["a"], grace_s=5)
    agent.end_of("a")


def test_exec_in_an_unknown_job_is_refused(agent: Driver) -> None:
    with pytest.raises(AgentError) as refused:
        agent.call("exec", key="no", new_key="x", argv=["true"])
    assert refused.value.code == "unknown_job"


def test_five_hundred_jobs_all_end_once(agent: Driver, root: Path) -> None:
    keys = [f"n{index}" for index in range(500)]
    for at in range(0, 500, 50):
        agent.call("start", jobs=[{"key": key, "argv": ["true"]} for key in keys[at : at + 50]])
        agent.end_of(*keys[at : at + 50])
    assert {agent.ended[key]["code"] for key in keys} == {0}
    assert set(agent.end_count.values()) == {1}
    assert set(agent.call("forget", keys=keys)["forgotten"]) == set(keys)
    wait_until(lambda: not list((root / "jobs").iterdir()) + list((root / "trash").iterdir()))


def test_running_jobs_are_not_forgotten(agent: Driver) -> None:
    agent.start("a", "sleep", "60")
    agent.wait_for(lambda: "a" in agent.started)
    assert agent.call("forget", keys=["a"])["forgotten"] == []
    agent.call("stop", keys=["a"], grace_s=5)
    agent.end_of("a")


def test_the_folders_are_private_and_the_ending_is_out_of_the_job_s_reach(
    agent: Driver, root: Path
) -> None:
    end = agent.run("a", "true", env={"TOKEN": "secret"})
    folder, record = root / "jobs/a", root / "records/a"
    for private in (root, folder, root / "records", record):
        assert private.stat().st_mode & 0o777 == 0o700
    for file in (folder / "out", folder / "err", record / "exit"):
        assert file.stat().st_mode & 0o777 == 0o600
    kept = json.loads((record / "exit").read_text())
    assert kept.pop("spec")["argv"] == ["true"]
    assert kept == end


def test_python_that_is_not_found_gets_a_hint(agent: Driver, tmp_path: Path) -> None:
    (tmp_path / "python3").touch(0o755)
    end = agent.run("a", "python", env={"PATH": str(tmp_path)})
    first, *hints = end["text"].splitlines()
    assert first == "command not found: python"
    assert hints[0] == "python3 is there" and "--setup" in hints[1]
    assert hints.count("python3 is there") == 1
