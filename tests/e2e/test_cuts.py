"""A machine that cannot be reached, or loses its power: its jobs are what they are over there."""

import re
from pathlib import Path

import pytest

from e2e.engines import kill_engine
from e2e.jobs import configure, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

#: Prints line after line until the file `end` is in the home of its host.
COUNTING = 'n=0; until [ -e "$HOME/end" ]; do n=$((n+1)); echo line $n; sleep 0.1; done; exit 9'
#: Says where it began, and what ended it.
LASTING = (
    'trap \'echo stopped >> "$HOME/told"; exit 1\' TERM; echo began >> "$HOME/told"; '
    'until [ -e "$HOME/end" ]; do sleep 0.1; done'
)


def lines_printed(hosts: Hosts, name: str) -> int:
    """How far every job on a host has counted, looked up on its disk."""
    files = hosts.home(name).glob(".towline/jobs/*/out")
    return min((file.read_bytes().count(b"\n") for file in files), default=0)


def told(hosts: Hosts, name: str) -> list[str]:
    file = hosts.home(name) / "told"
    return file.read_text().split() if file.exists() else []


def counted(text: str) -> bool:
    """True when it is line 1, line 2 and so on, without a gap and none twice."""
    numbers = [int(number) for number in re.findall(r"^line (\d+)$", text, re.MULTILINE)]
    return len(numbers) > 0 and text == "".join(f"line {n + 1}\n" for n in range(len(numbers)))


def machine_states(tow: Tow) -> dict[str, str]:
    return {machine["name"]: machine["state"] for machine in tow.json("machines")["machines"]}


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [12, 60])
def test_a_host_cut_off_and_back_loses_nothing_and_nobody_does_anything(
    hosts: Hosts, tow: Tow, seconds: int
) -> None:
    configure(tow, "h1")
    follower = tow.popen("run", "-c", "lab", "sh", "-c", COUNTING)
    beside = submit(tow, "-c", "lab", "sh", "-c", COUNTING)
    assert follower.stdout and follower.stdout.readline() == "line 1\n"
    wait_for(tow, beside, "running")
    hosts.cut("h1")
    before = lines_printed(hosts, "h1")
    # Ten lines take a second at least.
    wait_until(lambda: lines_printed(hosts, "h1") > before + 10 * seconds, timeout=3 * seconds)
    assert show(tow, beside)["state"] == "running"
    hosts.heal("h1")
    (hosts.home("h1") / "end").touch()
    rest, said = follower.communicate(timeout=90)
    assert follower.returncode == 9, said
    assert counted("line 1\n" + rest), said
    assert ended(tow, beside, timeout=60)["exit_code"] == 9
    log = tow("log", str(beside))
    assert counted(log.stdout) and log.stdout.count("\n") > 10 * seconds, log.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("words", [["log"], ["ls"], ["pull", "."], ["push", "."]])
def test_whoever_asks_a_machine_that_is_cut_off_is_told_so_at_once(
    hosts: Hosts, tow: Tow, words: list[str]
) -> None:
    configure(tow, "h1")
    (tow.folder / "file").write_text("for a push")
    number = submit(tow, "-c", "lab", "sh", "-c", COUNTING)
    wait_for(tow, number, "running")
    wait_until(lambda: lines_printed(hosts, "h1") > 0)
    hosts.cut("h1")
    asking = tow.popen(words[0], str(number), *words[1:])
    assert asking.stderr is not None
    said = asking.stderr.readline()
    assert re.fullmatch(r"h1 does not answer since \d\d:\d\d:\d\d; trying\n", said)
    assert asking.poll() is None
    hosts.heal("h1")
    (hosts.home("h1") / "end").touch()
    ended(tow, number, timeout=60)


@pytest.mark.timeout(180)
def test_a_job_stays_until_its_machine_answers_and_says_that_it_is_gone(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "sh", "-c", LASTING)
    wait_for(tow, number, "running")
    wait_until(lambda: told(hosts, "h1") == ["began"])
    hosts.kill("h1")
    wait_until(lambda: machine_states(tow)["h1"] == "offline", timeout=60)
    (still,) = tow.json("status")["jobs"]
    assert (still["id"], still["state"]) == (number, "running")
    assert "h1: does not answer" in still["reason"]
    hosts.boot("h1")
    lost = wait_for(tow, number, "lost", timeout=60)
    assert "restarted" in lost["reason"] or "exit code is not known" in lost["reason"]
    assert lost["exit_code"] is None
    assert told(hosts, "h1") == ["began"]


@pytest.mark.timeout(180)
def test_with_retries_a_job_of_a_machine_that_lost_its_power_starts_elsewhere(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1", "h2")
    number = submit(tow, "-c", "lab", "--retries", "1", "sh", "-c", LASTING)
    (first,) = wait_for(tow, number, "running")["machines"]
    second = "h2" if first == "h1" else "h1"
    (hosts.home(second) / "end").touch()
    hosts.kill(first)
    wait_until(lambda: machine_states(tow)[first] == "offline", timeout=60)
    hosts.boot(first)
    done = ended(tow, number, timeout=60)
    assert (done["state"], done["machines"], done["attempt"]) == ("done", [second], 2)
    assert told(hosts, second) == ["began"]
    assert any(first in line["text"] for line in done["history"])


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_with_retries_a_job_of_a_silent_machine_starts_elsewhere_and_ends_there_when_it_is_back(
    hosts: Hosts, tow: Tow, tow_home: Path, restarted: bool
) -> None:
    configure(tow, "h1", "h2", cluster="lost_after_s = 1")
    number = submit(tow, "-c", "lab", "--retries", "1", "sh", "-c", LASTING)
    (first,) = wait_for(tow, number, "running")["machines"]
    second = "h2" if first == "h1" else "h1"
    wait_until(lambda: told(hosts, first) == ["began"])
    hosts.cut(first)
    wait_until(lambda: told(hosts, second) == ["began"], timeout=120)
    assert told(hosts, first) == ["began"]
    if restarted:
        kill_engine(tow_home)
        assert show(tow, number)["attempt"] == 2
    hosts.heal(first)
    wait_until(lambda: told(hosts, first) == ["began", "stopped"], timeout=60)
    (hosts.home(second) / "end").touch()
    done = ended(tow, number)
    assert (done["state"], done["machines"], done["attempt"]) == ("done", [second], 2)


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_silence_ends_no_job_and_what_ended_meanwhile_comes_home(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1", cluster="lost_after_s = 1")
    stays = submit(tow, "-c", "lab", "sh", "-c", f"{LASTING}; echo made > made")
    # Another one, of the same machine, shows when the time is over after which one is given up.
    moves = submit(tow, "-c", "lab", "--retries", "1", "sh", "-c", LASTING)
    wait_for(tow, stays, "running")
    wait_for(tow, moves, "running")
    hosts.cut("h1")
    given_up = wait_for(tow, moves, "queued", timeout=120)
    assert "h1 has not answered for" in given_up["reason"]
    silent = show(tow, stays)
    assert (silent["state"], silent["attempt"]) == ("running", 1)
    assert silent["silent_since"] and "h1: does not answer" in silent["reason"]
    assert "silent for" in tow("status").stdout
    assert "silent for" in tow("why", str(stays)).stdout
    (hosts.home("h1") / "end").touch()
    hosts.heal("h1")
    for number in (stays, moves):
        done = ended(tow, number, timeout=60)
        assert (done["state"], done["attempt"], done["silent_since"]) == ("done", 1, None)
    assert told(hosts, "h1") == ["began", "began"]
    made = tow.folder / "job_results" / str(stays) / "made"
    assert wait_until(lambda: made.exists() and made.read_text()) == "made\n"


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_a_machine_that_is_back_before_its_job_started_elsewhere_keeps_it(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1", cluster="lost_after_s = 1")
    number = submit(tow, "-c", "lab", "--retries", "1", "sh", "-c", LASTING)
    wait_for(tow, number, "running")
    wait_until(lambda: told(hosts, "h1") == ["began"])
    hosts.cut("h1")
    wait_for(tow, number, "queued", timeout=120)
    hosts.heal("h1")
    assert wait_for(tow, number, "running", timeout=60)["attempt"] == 1
    (hosts.home("h1") / "end").touch()
    done = ended(tow, number)
    assert (done["state"], done["attempt"]) == ("done", 1)
    assert told(hosts, "h1") == ["began"]
    assert any("h1 answers again" in line["text"] for line in done["history"])


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_a_stop_reaches_a_silent_machine_when_it_is_back_and_may_be_given_up_before(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    waits = submit(tow, "-c", "lab", "sh", "-c", LASTING)
    given_up = submit(tow, "-c", "lab", "sh", "-c", LASTING)
    wait_until(lambda: told(hosts, "h1") == ["began", "began"])
    hosts.cut("h1")
    wait_until(lambda: show(tow, waits)["silent_since"], timeout=120)
    said = tow("stop", str(waits)).stdout
    assert f"job {waits} stopping: h1 does not answer; it is told as soon as it does" in said
    assert tow("stop", "--give-up", str(given_up)).stdout == f"job {given_up} lost\n"
    assert show(tow, given_up)["reason"] == "given up, because h1 does not answer"
    assert show(tow, waits)["state"] == "stopping"
    hosts.heal("h1")
    assert ended(tow, waits, timeout=60)["state"] == "stopped"
    wait_for(tow, given_up, "stopped")
    assert sorted(told(hosts, "h1")) == ["began", "began", "stopped", "stopped"]


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_job_of_a_machine_without_power_is_found_lost_by_the_next_engine(
    hosts: Hosts, tow: Tow, tow_home: Path
) -> None:
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "sh", "-c", LASTING)
    wait_for(tow, number, "running")
    assert tow("engine", "stop").returncode == 0
    hosts.poweroff("h1")
    assert show(tow, number)["state"] == "running"
    hosts.boot("h1")
    assert wait_for(tow, number, "lost", timeout=60)["reason"]


@pytest.mark.timeout(180)
def test_the_output_of_an_ended_job_is_read_from_here_while_its_machine_is_away(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "sh", "-c", "echo out; echo err >&2")
    ended(tow, number)
    wait_until(lambda: show(tow, number)["results"].startswith("/"))
    hosts.kill("h1")
    wait_until(lambda: machine_states(tow)["h1"] == "offline", timeout=60)
    done = tow("log", str(number))
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert "h1: " in done.stderr and "this is what came home\nerr\n" in done.stderr
    hosts.boot("h1")
