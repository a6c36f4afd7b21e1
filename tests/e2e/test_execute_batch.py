"""The ssh scheduler's commands, typed as its users type them, against real machines."""

import subprocess
from pathlib import Path

import pytest

from e2e.jobs import read_line_with
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

BATCH_SCRIPT = """\
echo "one job"
echo "another job"
echo "another job" && echo "a combined job (bash syntax applies)"
bash example/local.sh && echo "you can also call local files"
"""
OWN_COPIES = """\
execute_remote --copy-forwards one --copy-backwards one/out.txt --machine ignored.yaml \\
    --job-name first 'ls; tr 1 x < one/in.txt > one/out.txt'
execute_remote --copy-forwards two -- 'ls'
ls
"""
BIG = {"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}
COMMANDS = ("execute_batch", "execute_remote", "execute_to", "combine_folders")
BOTH = "--machines example/machine.yaml example/machine2.yaml"
SMALL = "--no-gpu-required --memory-required=10 --num-cpus=1"


class Terminal:
    """A shell in the project's folder that knows the compatible commands."""

    def __init__(self, tow: Tow, bin_folder: Path) -> None:
        bin_folder.mkdir()
        for name in COMMANDS:
            script = bin_folder / name
            run = f'exec {tow.program[0]} -m towline.cli.compat.{name} "$@"'
            script.write_text(f"#!/bin/sh\n{run}\n")
            script.chmod(0o755)
        self.folder = tow.folder
        self.results = tow.folder / "job_results"
        self.env = {**tow.env, "PATH": f"{bin_folder}:{tow.env['PATH']}"}

    def __call__(self, line: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def put(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def get(self, path: str) -> str:
        return (self.results / path).read_text()


def machine_text(hosts: Hosts, host: str) -> str:
    """A machine's file; how test hosts are checked is in the ssh configuration of the test."""
    key = hosts.ssh_config.parent / "keys" / "client"
    return f"username: worker\nip: {host}\nport: 22  # a comment\nssh_key_path: {key}\n"


@pytest.fixture
def example(tow: Tow, hosts: Hosts, tmp_path: Path) -> Terminal:
    """The ssh scheduler's example: two machines, the first with two GPUs."""
    terminal = Terminal(tow, tmp_path / "bin")
    hosts.set_gpus("h1", [BIG, BIG])
    terminal.put("example/machine.yaml", machine_text(hosts, "h1"))
    terminal.put("example/machine2.yaml", machine_text(hosts, "h2"))
    terminal.put("example/batch_script.sh", BATCH_SCRIPT)
    terminal.put("example/local.sh", "cat example/data.txt | tee made.txt\n")
    terminal.put("example/data.txt", "local data\n")
    # The one machine below all test hosts has few CPUs, and others use them too.
    machines = ", ".join(f'{{ ssh = "worker@{host}", cpus = 32 }}' for host in ("h1", "h2"))
    config = f"[engine]\nprobe_every_s = 0.5\n[clusters.lab]\nmachines = [{machines}]\n"
    (tow.home / "config.toml").write_text(config)
    return terminal


def test_the_example_runs_as_it_is_typed(example: Terminal) -> None:
    done = example(f"execute_batch example/batch_script.sh {BOTH}")
    assert done.returncode == 0, done.stderr
    limits, choices, *lines = done.stdout.splitlines()
    assert limits.startswith("machine limits:  {'example/machine.yaml': ")
    assert limits.endswith(", 'example/machine2.yaml': 0}")
    assert choices.startswith("machine gpu choices: [[0") and choices.endswith(", []]")
    commands = BATCH_SCRIPT.splitlines()
    for number, command in enumerate(commands, 1):
        name = f"example_batch_script.sh.{number}"
        started = [
            place
            for place, line in enumerate(lines)
            for gpu in (0, 1)
            if line == f"started: {name};  export CUDA_VISIBLE_DEVICES={gpu} && {command}"
        ]
        assert len(started) == 1, done.stdout
        assert lines.index(f"finished: {name}; {command}") > started[0]
    assert len(lines) == 2 * len(commands), done.stdout
    assert example.get("example_batch_script.sh.1.out") == "one job\n"
    assert example.get("example_batch_script.sh.1.err") == ""
    made = example.get("example_batch_script.sh.4.out")
    assert made == "local data\nyou can also call local files\n"
    assert example.get("example_batch_script.sh.4/made.txt") == "local data\n"
    # By default all of the current folder is copied there, and back.
    assert example.get("example_batch_script.sh.1/example/local.sh").startswith("cat")


def test_both_gpus_are_used_failures_are_told_and_results_are_not_made_twice(
    example: Terminal,
) -> None:
    meet = "touch ~/met$CUDA_VISIBLE_DEVICES; until [ -e ~/met0 -a -e ~/met1 ]; do sleep 0.05; done"
    failing = 'echo "jobs will tell you if they fail" && exit 1'
    example.put("batch.sh", f"{meet}\n{meet}; true\n\n{failing}\n")
    line = "execute_batch batch.sh --machines example/machine --memory-required=200"
    done = example(line)
    assert done.returncode == 1
    limits, choices, *lines = done.stdout.splitlines()
    assert limits == "machine limits:  {'example/machine': 2}"
    assert choices == "machine gpu choices: [[0, 1]]"
    started = "started: batch.sh.{};  export CUDA_VISIBLE_DEVICES={} && touch"
    assert {started.format(*pair) for pair in ((1, 0), (2, 1))} == {
        line.partition(" ~")[0] for line in lines if line.startswith("started") and "~" in line
    }
    assert f"failed: batch.sh.4; {failing}" in lines
    assert example.get("batch.sh.4.out") == "jobs will tell you if they fail\n"
    again = example(f"rm -r job_results/batch.sh.4*; {line}").stdout.splitlines()
    skipped = "skipping evaluation: delete if you wish to rerun"
    assert again[2:4] == [
        f"WARNING: job results already exists for line {number}, {skipped}" for number in (1, 2)
    ]
    assert [line.split(";")[0] for line in again[4:]] == [
        "started: batch.sh.4",
        "failed: batch.sh.4",
    ]


def test_lines_may_bring_their_own_copies_and_names(example: Terminal) -> None:
    example.put("one/in.txt", "1\n")
    example.put("two/in.txt", "2\n")
    example.put("batch.sh", OWN_COPIES)
    done = example(f"execute_batch batch.sh {BOTH} {SMALL} --copy-forwards two batch.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started: first;  execute_remote --copy-forwards one" in done.stdout
    assert example.get("first.out") == "one\n"
    assert example.get("first/one/out.txt") == "x\n"
    assert not (example.results / "first" / "one" / "in.txt").exists()
    assert example.get("batch.sh.3.out") == "two\n"
    assert example.get("batch.sh.3/two/in.txt") == "2\n"
    assert example.get("batch.sh.4.out") == "batch.sh\ntwo\n"


def test_git_ignored_files_travel_as_well(example: Terminal) -> None:
    example("git init -q . && echo data.bin > .gitignore")
    example.put("data.bin", "ignored by git")
    example.put("batch.sh", "cat data.bin\n")
    done = example(f"execute_batch batch.sh --machines example/machine2.yaml {SMALL}")
    assert done.returncode == 0, done.stderr
    assert example.get("batch.sh.1.out") == "ignored by git"


def test_a_whole_machine_shows_the_job_all_its_gpus(example: Terminal) -> None:
    example.put("batch.sh", "echo ${CUDA_VISIBLE_DEVICES-all}\n")
    done = example(f"execute_batch batch.sh {BOTH} --reserve --memory-required=200")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("machine limits:  {'example/machine.yaml': 1, ")
    assert lines[2] == "started: batch.sh.1;  echo ${CUDA_VISIBLE_DEVICES-all}"
    assert example.get("batch.sh.1.out") == "all\n"


def test_what_no_machine_has_is_refused_with_a_way_to_look(example: Terminal, tow: Tow) -> None:
    example.put("batch.sh", "true\n")
    done = example(f"execute_batch batch.sh {BOTH} --gpu-memory-required=90000")
    assert done.returncode == 2
    assert done.stdout.startswith("machine limits:  {'example/machine.yaml': 0, ")
    assert done.stderr.startswith("execute_batch: ")
    hint = done.stderr.partition("tow machines -c ")[2].split()[0]
    names = [machine["name"] for machine in tow.json("machines", "-c", hint)["machines"]]
    assert names == ["worker@h1", "worker@h2"]


def test_a_dry_run_shows_what_goes_where_and_starts_nothing(example: Terminal) -> None:
    example.put("batch.sh", "echo a\necho b\necho c\n")
    line = "execute_batch batch.sh --machines example/machine.yaml --memory-required=200 --dry-run"
    assert example(line).stdout.splitlines()[2:] == [
        "on example/machine.yaml: started: batch.sh.1;  export CUDA_VISIBLE_DEVICES=0 && echo a",
        "on example/machine.yaml: started: batch.sh.2;  export CUDA_VISIBLE_DEVICES=1 && echo b",
        "waits for room: batch.sh.3;  echo c",
    ]
    assert not example.results.exists()


def test_a_machine_that_is_configured_too_is_one_machine(
    example: Terminal, tow: Tow, hosts: Hosts
) -> None:
    """Whatever it is called there: its jobs are seen, and none of them is ended."""
    config = (tow.home / "config.toml").read_text()
    (tow.home / "config.toml").write_text(config.replace("worker@h2", "h2"))
    logins = hosts.log("h2").count("Accepted")
    waiting = "until [ -e ~/go ]; do sleep 0.05; done"
    job = tow.popen(
        "run", "-c", "lab", "--mem", "10", "--exclusive", "sh", "-c", f"echo up; {waiting}"
    )
    read_line_with(job, "up")
    machine = tow.json("show", "1")["machines"][0]
    file = {"worker@h1": "machine", "h2": "machine2"}[machine]
    example.put("batch.sh", "echo after\n")
    limits = example(f"execute_batch batch.sh --machines example/{file} {SMALL} --dry-run").stdout
    assert limits.splitlines()[0] == f"machine limits:  {{'example/{file}': 0}}"
    (hosts.home(machine[-2:]) / "go").touch()
    assert job.wait(30) == 0
    assert example(f"execute_batch batch.sh --machines example/{file} {SMALL}").returncode == 0
    assert hosts.log("h2").count("Accepted") <= logins + 1
    assert [cluster["name"] for cluster in tow.json("clusters")["clusters"]] == ["local", "lab"]


def test_a_machine_reached_by_two_ways_keeps_the_jobs_of_both(
    example: Terminal, tow: Tow, hosts: Hosts
) -> None:
    """Where ssh cannot tell that it is one: here, by its address and through another machine."""
    config = Path(tow.env["TOWLINE_SSH_CONFIG"]).read_text()
    around = "Host around\n  HostName h2\n  HostKeyAlias h2\n  ProxyJump h1\n"
    (tow.folder / "ssh_config").write_text(around + config)
    tow.env["TOWLINE_SSH_CONFIG"] = str(tow.folder / "ssh_config")
    example.env["TOWLINE_SSH_CONFIG"] = str(tow.folder / "ssh_config")
    example.put("example/around.yaml", machine_text(hosts, "around"))
    with open(tow.home / "config.toml", "a") as file:
        file.write('[clusters.one]\nmachines = [{ ssh = "worker@h2", cpus = 32 }]\n')
    waiting = "until [ -e ~/go ]; do sleep 0.05; done; echo went"
    job = tow.popen("run", "-c", "one", "sh", "-c", f"hostname; {waiting}")
    assert read_line_with(job, "h") == "h2\n"
    done = example("execute_to --machines example/around.yaml -- 'hostname; touch ~/go'")
    assert done.stdout == "[example/around.yaml] h2\n"
    assert job.communicate(timeout=30)[0] == "went\n"
    assert job.returncode == 0


def test_a_batch_goes_on_without_its_terminal_and_over_a_new_engine(
    example: Terminal, tow: Tow, hosts: Hosts
) -> None:
    """On machines that no configuration names."""
    (tow.home / "config.toml").unlink()
    example.put("batch.sh", "until [ -e ~/go ]; do sleep 0.05; done; echo went\n")
    words = f"batch.sh --machines example/machine2.yaml {SMALL}".replace("cpus=1", "cpus=0.01")
    program = [tow.program[0], "-m", "towline.cli.compat.execute_batch", *words.split()]
    typed = subprocess.Popen(
        program, cwd=tow.folder, env=tow.env, stdout=subprocess.PIPE, text=True
    )
    try:
        read_line_with(typed, "started:")
    finally:
        typed.kill()
        typed.communicate()
    assert tow("engine", "stop").returncode == 0
    (hosts.home("h2") / "go").touch()
    assert tow("status").returncode == 0
    out = example.results / "batch.sh.1.out"
    wait_until(lambda: out.exists() and out.read_text() == "went\n", timeout=30)


def test_a_wrong_key_is_refused_and_a_corrected_one_is_used(example: Terminal, tow: Tow) -> None:
    (tow.home / "config.toml").unlink()
    file = tow.folder / "example" / "machine2.yaml"
    good = file.read_text()
    example("ssh-keygen -q -t ed25519 -N '' -f ./other_key")
    before, _, _ = good.partition("ssh_key_path")
    file.write_text(f"{before}ssh_key_path: ./other_key\n")
    # The other keys of the tests' ssh configuration must not help out.
    config = Path(tow.env["TOWLINE_SSH_CONFIG"]).read_text()
    lines = [line for line in config.splitlines() if "IdentityFile" not in line]
    (tow.folder / "ssh_config").write_text("\n".join(lines))
    example.env["TOWLINE_SSH_CONFIG"] = str(tow.folder / "ssh_config")
    typed = "execute_remote --machine example/machine2.yaml --copy-forwards -- hostname"
    refused = example(typed)
    assert refused.returncode == 1
    assert "execute_remote: worker@h2: login refused" in refused.stderr
    file.write_text(good)
    assert example(typed).stdout == "h2\n"


def test_a_machine_nobody_has_met_is_refused_with_what_to_do(example: Terminal, tow: Tow) -> None:
    (tow.home / "config.toml").unlink()
    config = Path(tow.env["TOWLINE_SSH_CONFIG"]).read_text()
    lines = [line for line in config.splitlines() if "UserKnownHostsFile" not in line]
    nobody = "Host *\n  UserKnownHostsFile /dev/null\n"
    (tow.folder / "ssh_config").write_text(nobody + "\n".join(lines))
    example.env["TOWLINE_SSH_CONFIG"] = str(tow.folder / "ssh_config")
    refused = example("execute_to --machines example/machine2.yaml -- 'echo never'")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "worker@h2: its host key is not known yet" in refused.stderr
    assert "tow login worker@h2" in refused.stderr
    tow.env["TOWLINE_SSH_CONFIG"] = example.env["TOWLINE_SSH_CONFIG"]
    assert tow("engine", "stop").returncode == 0
    # Also an Engine that has not seen the machine knows how to log in to it.
    assert "worker@h2" in tow("login", "worker@h2").stderr


def test_one_command_on_one_machine_ends_with_its_own_exit_code(example: Terminal) -> None:
    done = example(
        "execute_remote --machine example/machine2 --job-name mine "
        "'hostname; cat example/data.txt; echo careful >&2; echo made > made.txt; exit 7'"
    )
    assert done.returncode == 7
    assert done.stdout == "h2\nlocal data\n"
    assert done.stderr.startswith("careful\n")
    assert example.get("mine.out") == done.stdout
    assert example.get("mine.err") == "careful\n"
    assert example.get("mine/made.txt") == "made\n"
    again = example("execute_remote --machine example/machine2 --job-name mine true")
    assert again.returncode == 2
    assert "job_results already" in again.stderr


def test_a_command_on_every_machine_shows_where_each_line_is_from(
    example: Terminal, hosts: Hosts
) -> None:
    done = example(f"execute_to {BOTH} 'hostname; ls; exit $(hostname | tr -d h)'")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == [
        "[example/machine.yaml] h1",
        "[example/machine2.yaml] h2",
    ]
    assert "example/machine.yaml: failed: exit code 1" in done.stderr
    assert "example/machine2.yaml: failed: exit code 2" in done.stderr
    assert not example.results.exists()
    hosts.kill("h2")
    done = example(f"execute_to {BOTH} 'echo fine'")
    assert done.returncode == 1
    assert done.stdout == "[example/machine.yaml] fine\n"
    assert "1 of 2 failed: example/machine2.yaml" in done.stderr
    done = example("execute_to --machines example/machine.yaml -- 'true'")
    assert (done.returncode, done.stdout) == (0, "")


def test_results_of_a_batch_can_be_combined(example: Terminal) -> None:
    lines = [
        f"execute_remote --copy-backwards out -- 'mkdir out; echo {n} > out/{n}'" for n in "ab"
    ]
    example.put("batch.sh", "\n".join(lines))
    assert example(f"execute_batch batch.sh {BOTH} {SMALL}").returncode == 0
    assert example("combine_folders all job_results/batch.sh.?/").returncode == 0
    assert sorted(path.name for path in (example.folder / "all" / "out").iterdir()) == ["a", "b"]
