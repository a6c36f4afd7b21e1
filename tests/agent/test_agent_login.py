"""What logging in gives is there for commands and set-ups, whatever profiles do besides."""

from pathlib import Path

import pytest

from testbed.waiting import wait_until
from towline.agent.remote.commands import login
from towline.agent.remote.commands.process_tree import is_alive

from .conftest import NewAgent
from .driver import START, Driver

LOGGED_IN = START.replace("main({root!r})", "main({root!r}, True)")
HURRIED = LOGGED_IN.replace("; main(", "; import remote.commands.login as l; l.MOST_S = 0.3; main(")
#: As Lmod does it for shells that log in; `load` sets a variable.
MODULE = 'module() { echo "[$*]"; export LOADED="$2"; }\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def logged_in(new_agent: NewAgent, home: Path, profile: str, code: str = LOGGED_IN) -> Driver:
    (home / ".bash_profile").write_text(profile)
    return new_agent(code=code, HOME=str(home))


def test_commands_see_what_a_login_exports(new_agent: NewAgent, home: Path) -> None:
    tool = home / "bin" / "my tool"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "found $COLOUR"\n')
    tool.chmod(0o755)
    profile = "echo welcome; echo hi >&2\nexport COLOUR='bl ue\nü' PATH=~/bin:$PATH\n"
    agent = logged_in(new_agent, home, profile)
    assert agent.run("a", "my tool")["code"] == 0
    assert agent.output("a").decode() == "found bl ue\nü\n"
    assert agent.run("b", "sh", "-c", 'echo "$COLOUR"', env={"COLOUR": "mine"})["code"] == 0
    assert agent.output("b") == b"mine\n"
    agent.run("c", "bash", "-c", 'echo "${PWD##*/} $OLDPWD"')
    assert agent.output("c") == b"src \n"


def test_functions_that_a_login_exports_are_there_for_scripts(
    new_agent: NewAgent, home: Path
) -> None:
    agent = logged_in(new_agent, home, MODULE + "export -f module\n")
    agent.run("a", "bash", "-c", "module load python")
    assert agent.output("a") == b"[load python]\n"


def test_functions_that_only_bashrc_exports_are_there_and_its_variables_stay_its_own(
    new_agent: NewAgent, home: Path
) -> None:
    rc = f"echo hello\n{MODULE}export -f module\nexport COLOUR=rc\nexit 3\n"
    (home / ".bashrc").write_text(rc.replace("exit 3", "true"))
    agent = logged_in(new_agent, home, "export COLOUR=profile\n")
    for key, setup in (("a", ""), ("b", "module load x > /dev/null")):
        agent.run(key, "bash", "-c", "module load python; echo $COLOUR", setup=setup)
        assert agent.output(key) == b"[load python]\nprofile\n"
    (home / ".bashrc").write_text(rc)
    other = new_agent(code=LOGGED_IN, HOME=str(home))
    other.run("c", "sh", "-c", "echo $COLOUR")
    assert other.output("c") == b"profile\n"


def test_a_set_up_runs_in_a_shell_that_logged_in(new_agent: NewAgent, home: Path) -> None:
    agent = logged_in(new_agent, home, f"echo welcome\n{MODULE}cd /\n")
    end = agent.run("a", "sh", "-c", "echo $LOADED $PWD", setup="module load python", cwd="sub")
    assert (end["code"], end["cause"]) == (0, "")
    lines = agent.output("a").decode().splitlines()
    assert lines[0] == "[load python]"
    assert lines[1].startswith("python /") and lines[1].endswith("/src/sub")
    assert agent.output("a", "err") == b""


def test_what_a_job_is_given_wins_over_profiles_and_the_set_up_over_both(
    new_agent: NewAgent, home: Path
) -> None:
    agent = logged_in(new_agent, home, "export A=profile B=profile C=profile\n")
    given = {"A": "given\nü", "B": "given", "É": "x"}
    setup = "export B=$B+setup"
    agent.run("a", "sh", "-c", 'echo "$A $B $C"; env', setup=setup, env=given)
    first, second, *rest = agent.output("a").decode().splitlines()
    assert [first, second] == ["given", "ü given+setup profile"]
    assert not [line for line in rest if line.startswith(("TOWLINE_SETUP", "TOWLINE_G", "OLDPWD"))]
    assert agent.output("a", "err") == b""


def test_jobs_with_an_environment_of_their_own_do_not_log_in(
    new_agent: NewAgent, home: Path
) -> None:
    agent = logged_in(new_agent, home, f"export COLOUR=blue\n{MODULE}")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "MINE": "1"}
    agent.run("a", "sh", "-c", "echo $COLOUR,$MINE,$B", environ=environ, setup="export B=2")
    assert agent.output("a") == b",1,2\n"
    assert agent.run("b", "true", environ=environ, setup="module load x")["code"] == 127


def test_a_profile_that_hangs_is_not_waited_for_for_ever(new_agent: NewAgent, home: Path) -> None:
    agent = logged_in(new_agent, home, "export COLOUR=blue\nsleep 300\n", HURRIED)
    agent.run("a", "sh", "-c", "echo colour $COLOUR")
    assert agent.output("a") == b"colour\n"
    assert "within 0.3 s" in agent.call("probe")["raw"]["login"]


def test_a_profile_that_hangs_may_give_back_its_locks_and_leaves_nothing_running(
    new_agent: NewAgent, home: Path
) -> None:
    profile = "sleep 300 & echo $! > ~/began\ntrap 'echo given back > ~/lock' TERM\nsleep 300\n"
    logged_in(new_agent, home, profile, HURRIED).run("a", "true")
    wait_until((home / "lock").exists)
    wait_until(lambda: not is_alive(int((home / "began").read_text())))


def test_a_profile_that_ignores_being_asked_is_ended(new_agent: NewAgent, home: Path) -> None:
    profile = "trap '' TERM\necho $$ > ~/began\nsleep 300\n"
    hurried = HURRIED.replace(
        "; main(", "; import remote.commands.call as c; c.GRACE_S = 0.1; main("
    )
    agent = logged_in(new_agent, home, profile, hurried)
    agent.run("a", "true")
    shell = int((home / "began").read_text())
    wait_until(lambda: not is_alive(shell))
    assert agent.run("b", "true")["code"] == 0


@pytest.mark.parametrize("profile", ["exit 3\n", "exec true\n", "kill -9 $$\n"])
def test_a_profile_that_ends_the_shell_harms_only_set_ups(
    new_agent: NewAgent, home: Path, profile: str
) -> None:
    agent = logged_in(new_agent, home, profile)
    assert agent.run("a", "true")["code"] == 0
    end = agent.run("b", "true", setup="module load x")
    assert end["cause"] == "setup"
    assert "the profile of the login shell ended it" in end["text"]


def test_without_a_login_nothing_is_read(new_agent: NewAgent, home: Path) -> None:
    agent = logged_in(new_agent, home, "export COLOUR=blue\n", START)
    agent.run("a", "sh", "-c", "echo colour $COLOUR")
    assert agent.output("a") == b"colour\n"
    assert agent.call("probe")["raw"]["login"] == ""


def test_the_shell_is_the_users_own_where_it_is_one_that_can_log_in() -> None:
    assert login.login_words("/bin/sh")[:3] == [b"/bin/sh", b"-l", b"-c"]
    assert login.login_words("/usr/sbin/nologin")[0] == b"/bin/bash"
    assert login.login_words("/no/such/zsh")[0] == b"/bin/bash"


@pytest.mark.parametrize("text", ["", "welcome\n", f"{login.MARK}not json\n", f"{login.MARK}[1]"])
def test_what_cannot_be_read_is_no_environment(text: str) -> None:
    assert login.environment_in(text) == {}


def test_a_line_for_an_interactive_bash_has_all_of_bashrc_and_only_its_own_output(
    new_agent: NewAgent, home: Path
) -> None:
    guard = "echo always\ncase $- in *i*) ;; *) return;; esac\n"
    rc = f'{guard}echo hello\nexport PATH=~/conda/bin:"$PATH"\nalias twice="echo twice"\n'
    (home / ".bashrc").write_text(rc)
    agent = logged_in(new_agent, home, ". ~/.bashrc\n")
    line = 'echo "${PATH%%:*}"; twice; false || exit 3'
    assert agent.run("a", "bash", "-i", "-c", line)["code"] == 3
    assert agent.output("a").decode() == f"{home}/conda/bin\ntwice\n"
    assert agent.output("a", "err") == b""


def test_a_line_for_an_interactive_bash_can_be_stopped(new_agent: NewAgent, home: Path) -> None:
    agent = logged_in(new_agent, home, "")
    agent.start("a", "bash", "-i", "-c", "sleep 300; echo never", grace_s=60)
    agent.wait_for(lambda: "a" in agent.started)
    agent.call("stop", keys=["a"])
    assert agent.end_of("a")["cause"] == "stopped"
    assert agent.output("a") == b""


def test_a_command_that_only_an_interactive_shell_finds_is_told_with_its_place(
    new_agent: NewAgent, home: Path
) -> None:
    tool = home / "conda" / "bin" / "trainer"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (home / ".bashrc").write_text('[ -n "$PS1" ] || return\nPATH=~/conda/bin:"$PATH"\n')
    agent = logged_in(new_agent, home, ". ~/.bashrc\n")
    for key, setup in (("a", ""), ("b", "true")):
        end = agent.run(key, "trainer", setup=setup)
        assert end["cause"] == "not_found"
        assert f"--setup 'export PATH={tool.parent}:$PATH'" in end["text"]
    assert agent.run("c", "no-such-thing")["text"] == "command not found: no-such-thing"


def test_an_interactive_shell_that_hangs_may_give_back_its_locks(
    new_agent: NewAgent, home: Path
) -> None:
    """As `pyenv rehash` in a .bashrc, which takes a lock and waits for the one who has it."""
    busy = "trap 'echo given back > ~/lock; exit' TERM; sleep 300 & wait"
    (home / ".bashrc").write_text(f'[ -n "$PS1" ] || return\nbash -c "{busy}"\n')
    hurried = START.replace(
        "; main(", "; import remote.commands.missing as m; m.MOST_S = 0.5; main("
    )
    agent = logged_in(new_agent, home, "", hurried)
    assert agent.run("a", "no-such-thing")["cause"] == "not_found"
    assert (home / "lock").read_text() == "given back\n"


def test_where_only_python3_is_there_it_is_named(new_agent: NewAgent, home: Path) -> None:
    (home / "pytool3").write_text("#!/bin/sh\n")
    (home / "pytool3").chmod(0o755)
    agent = logged_in(new_agent, home, f"export PATH={home}:$PATH\n")
    assert "pytool3 is there" in agent.run("a", "pytool")["text"]
