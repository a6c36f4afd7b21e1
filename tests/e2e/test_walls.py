"""Jobs in walls: they run as others do, and what they try against others is refused."""

import json
from typing import Any

import pytest

from e2e.jobs import configure, ended, show, submit
from e2e.walled import leaked, put_hostile, without_bubblewrap
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


def victim_of(tow: Tow, *options: str) -> tuple[int, dict[str, Any]]:
    """A running job that has something to lose, and where that is."""
    put_hostile(tow.folder)
    victim = submit(tow, *options, "python3", "victim.py")
    line = wait_until(lambda: tow("log", str(victim)).stdout.strip().splitlines(), timeout=60)
    return victim, json.loads(line[0])


def tries_against(tow: Tow, facts: dict[str, Any], *options: str) -> dict[str, str]:
    done = tow("run", *options, "python3", "tries.py", json.dumps(facts), timeout=180)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_nothing_of_the_account_or_of_other_jobs_is_reached_from_within_walls(
    tow: Tow, hosts: Hosts
) -> None:
    """The victim is without walls: whatever it has is on the machine itself, under the account
    that the hostile job has, too."""
    configure(tow, "h1")
    victim, facts = victim_of(tow, "-c", "lab")
    without = tries_against(tow, facts, "-c", "lab")
    # The tries are worth something: without walls they come through.
    assert {"t01_file_of_another_job", "t11_signal", "t15_shared_memory_by_key"} <= {
        *leaked(without)
    }
    assert {"t17_abstract_socket", "t18_port_on_loopback", "t04_keys_of_the_account"} <= {
        *leaked(without)
    }
    walled = tries_against(tow, facts, "-c", "lab", "--sandbox", "-e", "TOKEN=a secret")
    assert len(walled) > 45
    assert not leaked(walled)
    assert show(tow, victim)["state"] == "running"
    tow("stop", str(victim))


def test_a_walled_job_brings_home_what_it_made_and_is_looked_into(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", more='[clusters.walled]\nmachines = ["h1"]\nsandbox = true')
    (tow.folder / "input").write_text("given")
    done = tow("run", "-c", "walled", "sh", "-c", "cat input; echo made > made; ls ~; exit 5")
    assert (done.returncode, done.stdout) == (5, "given")
    assert (tow.folder / "job_results/1/made").read_text() == "made\n"
    job = submit(tow, "-c", "lab", "--sandbox", "sh", "-c", "echo ready; sleep 300")
    wait_until(lambda: tow("log", str(job)).stdout == "ready\n")
    beside = tow("exec", str(job), "--", "sh", "-c", "hostname; ls /home; ls $HOME/..; exit 3")
    assert beside.returncode == 3
    assert beside.stdout.split()[0].startswith("job-")
    assert {*beside.stdout.split()[1:]} == {"worker", "home", "keep", "src"}
    tow("stop", str(job))
    assert ended(tow, job)["state"] == "stopped"
    commands = "echo one\necho two\n"
    batch = tow("batch", "-c", "lab", "--sandbox", "-", input=commands)
    assert batch.returncode == 0, batch.stderr


def test_a_job_on_this_machine_is_walled_in_without_its_terminal_s_secrets(tow: Tow) -> None:
    look = "echo [$SECRET_TOKEN] $GIVEN; ls -A ~; touch /usr/x || echo refused"
    options = ["--sandbox", "-e", "GIVEN=yes"]
    done = tow("run", *options, "sh", "-c", look, env={"SECRET_TOKEN": "0xC0FFEE"})
    assert done.stdout == "[] yes\nrefused\n"


def test_what_cannot_be_walled_in_is_refused_in_words_before_it_starts(
    tow: Tow, hosts: Hosts
) -> None:
    more = '[clusters.queue]\nkind = "slurm"\nhost = "h1"\n[clusters.mine]\nmachines = ["this"]'
    configure(tow, "h2", more=more)
    with without_bubblewrap(hosts, "h2"):
        done = tow("run", "-c", "lab", "--sandbox", "touch", "made")
        assert done.returncode == 2
        assert "h2: bubblewrap is not installed" in done.stderr
        assert "sandbox: bubblewrap is not installed" in tow("doctor", "-c", "lab").stdout
    assert "sandbox: jobs can be walled in" in tow("doctor", "-c", "lab").stdout
    for options, why in (
        (["-c", "mine", "--in-place"], "cannot run in place"),
        (["-c", "lab", "--back", "$OUT"], "nothing can come home"),
        (["-c", "queue"], "--sandbox is for machines"),
    ):
        done = tow("run", *options, "--sandbox", "true")
        assert done.returncode == 2 and why in done.stderr, done.stderr


def test_a_fork_bomb_ends_at_its_limit_and_with_a_stop(tow: Tow, hosts: Hosts) -> None:
    """The bound is put down for the test: the machine is not to be filled with processes."""
    configure(tow, "h1")
    bomb = (
        "import os, resource, time\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))\n"
        "count = 0\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(300)\n"
        "        count += 1\n"
        "    except OSError:\n"
        "        print(count, flush=True)\n"
        "        time.sleep(300)\n"
    )
    job = submit(tow, "-c", "lab", "--sandbox", "python3", "-c", bomb)
    count = wait_until(lambda: tow("log", str(job)).stdout.strip(), timeout=60)
    assert 30 < int(count) < 60
    other = tow("run", "-c", "lab", "--sandbox", "bash", "-c", "ulimit -u; ulimit -c")
    assert other.stdout.split()[1] == "0" and int(other.stdout.split()[0]) <= 8192
    tow("stop", str(job))
    assert ended(tow, job)["state"] == "stopped"
    assert hosts.run("h1", ["pgrep", "-c", "-f", "RLIMIT_NPROC, .60"]).stdout.strip() == "0"


def test_signals_to_everybody_reach_only_the_own_box(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    victim, facts = victim_of(tow, "-c", "lab")
    all_of_them = (
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "os.kill(-1, 9)\n"
        "print(child.wait())\n"
    )
    done = tow("run", "-c", "lab", "--sandbox", "python3", "-c", all_of_them)
    assert done.stdout == "-9\n", done.stderr
    assert hosts.run("h1", ["kill", "-0", str(facts["pid"])]).returncode == 0
    assert show(tow, victim)["state"] == "running"
    tow("stop", str(victim))


def test_links_and_odd_files_that_a_job_leaves_are_not_followed_outside(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1")
    key = hosts.home("h1") / ".ssh/authorized_keys"
    leave = (
        "ln -s /home/worker/.ssh/authorized_keys stolen; ln -s /home/worker/.ssh keys; "
        "mkfifo pipe; truncate -s 1T sparse; ln -s / $KEEP_DIR/root; echo fine > fine"
    )
    options = ["-c", "lab", "--sandbox", "--back", "fine", "--back", "stolen", "--back", "keys"]
    done = tow("run", *options, "sh", "-c", leave)
    assert done.returncode == 0, done.stderr
    secret = key.read_text().split()[1]
    said = [tow("cat", "1:stolen"), tow("cat", "1:keys/authorized_keys"), tow("ls", "1:keys")]
    assert all(one.returncode for one in said)
    for path in [*tow.folder.rglob("*")]:
        assert not path.is_file() or secret not in path.read_text(errors="replace")
    assert (tow.folder / "job_results/1/fine").read_text() == "fine\n"
