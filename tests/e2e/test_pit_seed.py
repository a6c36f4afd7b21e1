"""What the snakepit client's own guide types, as it is written there, on a server with three real
nodes; and what the guide shows."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_pit import HEAD, NEW, git, unstamped
from testbed.hosts import Hosts
from testbed.pit import Pit, number_in
from testbed.team import TeamServer
from testbed.terminal import Terminal

pytestmark = pytest.mark.real

GTX1070 = {"name": "GeForce GTX 1070", "memory_total": 8192}
GTX1060 = {"name": "GeForce GTX 1060", "memory_total": 6144}
NODES = {
    "n0": [GTX1070, GTX1070],
    "n1": [GTX1070, GTX1070, *[GTX1060] * 4],
    "n2": [GTX1070, GTX1070, *[GTX1060] * 4],
}
#: What the driver says of a GPU.
INFORMATION = """\
Model: \t\t GeForce GTX 1070
IRQ:   \t\t {irq}
GPU UUID: \t GPU-{index}
Video BIOS: \t 86.04.26.00.80
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t 0000:0{bus}:00.0
Device Minor: \t {index}
Blacklisted:\t No
"""
ONE_GPU = 11
DRIVER = {
    f"nvidia/gpus/0000:0{index + 1}:00.0/{name}": text
    for index in (0, 1)
    for name, text in (
        ("information", INFORMATION.format(irq=139 + 3 * index, index=index, bus=index + 1)),
        ("registry", 'Binary: ""\n'),
    )
}
#: The dialogue of the guide, in its words: what is shown, and then typed.
FIRST_USE = (
    ("Please enter an existing or new username: ", "tilman"),
    ("Do you want to register this usename (yes|no)? ", "yes"),
    ("Full name: ", "Tilman Kamp"),
    ("E-Mail address: ", "tilman@lab.org"),
    ("New password: ", NEW),
    ("Reinput a same one to confirm it: ", NEW),
)


@pytest.fixture
def server(tmp_path: Path, hosts: Hosts) -> Iterator[TeamServer]:
    """Three nodes, which an administrator has added with `pit`."""
    made = TeamServer(tmp_path / "server", "")
    made.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
    made.start()
    root = Pit(tmp_path / "root", made).signed_in("root")
    for host, (node, gpus) in enumerate(NODES.items(), 1):
        hosts.set_gpus(f"h{host}", gpus)
        hosts.show_driver(f"h{host}", DRIVER)
        where = f"endpoint=ssh://h{host}"
        # Room for more processes than a busy machine of two cores has.
        root.well("add", f"node:{node}", where, "isolation=none", "cpus=16")
    root.well("add", "alias:gtx1070", "name=GeForce GTX 1070")
    root.well("add", "alias:gtx1060", "name=GeForce GTX 1060")
    yield made
    made.stop()


@pytest.fixture
def pit(server: TeamServer, tmp_path: Path) -> Pit:
    """A clean clone on a machine where nobody has used `pit` yet."""
    new = Pit(tmp_path / "tilman", server)
    git(new.folder, "init", "-q")
    (new.folder / "train.py").write_text("print('training')\n")
    git(new.folder, "add", "-A")
    git(new.folder, "commit", "-qm", "first")
    git(new.folder, "remote", "add", "origin", "https://github.com/lab/project")
    git(new.folder, "update-ref", "refs/remotes/origin/master", "HEAD")
    return new


def typed(pit: Pit, line: str) -> str:
    """What is shown when this line is typed, as it stands in the guide."""
    first, *words = shlex.split(line)
    assert first == "pit"
    return pit.well(*words)


def log_of(pit: Pit, said: str, request: str) -> list[str]:
    """The log behind the five lines of the guide, without its times."""
    preamble, _, log = said.partition("\n\n")
    assert preamble.splitlines() == [
        f"Job number: {number_in(said)}",
        "Remote:     origin <https://github.com/lab/project>",
        f"Hash:       {git(pit.folder, 'rev-parse', 'HEAD').strip()}",
        "Diff LoC:   0",
        f'Resources:  "{request}"',
    ]
    return unstamped(log)


def check_first_use(pit: Pit) -> None:
    with Terminal(pit, "status") as terminal:
        for shown, answer in FIRST_USE:
            terminal.sees(shown)
            terminal.types(f"{answer}\n")
        terminal.sees(HEAD)
        assert terminal.process.wait(timeout=20) == 0
        first, *_ = terminal.seen.splitlines()
    assert first.startswith("No user info found. Seems like a new user or first time login from")
    assert NEW not in terminal.seen and "*" * len(NEW) in terminal.seen
    assert typed(pit, "pit show me") == (
        "Username:         tilman\n"
        "Full name:        Tilman Kamp\n"
        "E-Mail address:   tilman@lab.org\n"
    )
    (pit.home / ".pituser.txt").write_text((pit.folder / ".pituser.txt").read_text())
    (pit.folder / ".pituser.txt").unlink()


def check_nodes(pit: Pit) -> None:
    assert typed(pit, "pit show nodes") == "n0\nn1\nn2\n"
    assert typed(pit, "pit show node:n0").splitlines() == [
        "Node name: n0",
        "State:     ONLINE",
        "Resources: ",
        '  0: "GeForce GTX 1070" aka "gtx1070" (cuda 0)',
        '  1: "GeForce GTX 1070" aka "gtx1070" (cuda 1)',
    ]


def check_lights(pit: Pit) -> None:
    line = """pit run "First light" [2:gtx1070] -d 'cat /proc/driver/nvidia/gpus/**/*' -l"""
    log = log_of(pit, typed(pit, line), "[2:gtx1070]")
    assert log[:2] == ["[daemon] Pit daemon started", "[worker 0] Worker 0 started"]
    assert log[2] == "[worker 0] Model: \t\t GeForce GTX 1070"
    assert log[12] == '[worker 0] Binary: ""' and len(log) == 2 + 2 * ONE_GPU + 2
    assert log[-2:] == [
        "[worker 0] Worker 0 ended with exit code 0",
        "[daemon] Worker 0 requested stop. Stopping pit...",
    ]

    line = """pit run "Second light" 2:[gtx1070] -d 'cat /proc/driver/nvidia/gpus/**/*' -l"""
    log = log_of(pit, typed(pit, line), "2:[gtx1070]")
    assert log[0] == "[daemon] Pit daemon started"
    started = {text for text in log if text.endswith(" started") and "worker" in text}
    ended = {text for text in log if "ended with exit code" in text}
    # Whichever ends first ends the job, and so perhaps the other.
    assert started <= {f"[worker {n}] Worker {n} started" for n in (0, 1)}
    assert ended and ended <= {f"[worker {n}] Worker {n} ended with exit code 0" for n in (0, 1)}
    assert re.fullmatch(r"\[daemon\] Worker [01] requested stop\. Stopping pit\.\.\.", log[-1])


def check_strange_job(pit: Pit) -> None:
    line = """pit run "Strange job" 2:[],4:[gtx1070,2:gtx1060] -d 'echo "Strange!"'"""
    job = number_in(typed(pit, line))
    log = unstamped(pit.well("log", str(job)))
    assert any(re.fullmatch(r"\[worker [0-5]\] Strange!", text) for text in log), log
    resources = re.search(r"^Resources: +(.*)$", pit.well("show", f"job:{job}"), re.MULTILINE)
    assert resources is not None
    placed = resources[1].split(" + ")
    assert sum(text.count("[]") for text in placed) <= 2
    assert {text.partition("[")[0] for text in placed} >= {"n1", "n2"}, placed


def check_processes_reach_each_other(pit: Pit) -> None:
    for name, other in (("PROCESS1", 0), ("PROCESS0", 1)):
        ping = f"exec 3<>/dev/tcp/$HOST_GROUP0_{name}/22 && echo reached"
        script = f"test $PROCESS_INDEX = {other} || exec sleep 60; {ping}"
        said = pit.well("run", "ping", "2:[]", "-d", script, "-l")
        assert f"[worker {other}] reached\n" in said, said


def test_the_guide_of_the_snakepit_client_is_typed_as_it_stands(pit: Pit) -> None:
    check_first_use(pit)
    check_nodes(pit)
    check_lights(pit)
    check_strange_job(pit)
    check_processes_reach_each_other(pit)
    assert typed(pit, "pit status").splitlines()[1] == "Done:"
