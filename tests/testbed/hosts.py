"""Real sshd hosts on this machine: each with its own network, files, users and process table.

    with Hosts() as hosts:
        hosts.run("h1", ["hostname"])        # or: ssh -F hosts.ssh_config h1 hostname
        hosts.cut("h2")                      # silence
        hosts.restore()                      # all hosts as they were

h1 to hN are on a network with us; in1 is reached only through h1. Needs root.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from . import client, disk, network
from .slot import ENVIRONMENT, NETNS, Slot, TestbedError, claim, command, processes_in
from .waiting import TooLate, wait_until

HERE = Path(__file__).resolve().parent
PROGRAMS = ("ssh", "ssh-keygen", "ip", "mount", "unshare", "nsenter")
SSHD = "/usr/sbin/sshd"
PYTHON_FOLDERS = ("usr/local/bin", "usr/bin")
HIDDEN_PYTHON = "usr/lib/testbed-hidden-python"
FULL_HOME = "testbed-full-home"
FAKE_DRIVER = "testbed-driver"


def check_parts() -> None:
    """Raise unless this machine has what the hosts are made of."""
    if os.geteuid() != 0:
        raise TestbedError("the test hosts need root (network namespaces); run the tests as root")
    missing = [
        program for program in PROGRAMS if not shutil.which(program, path=ENVIRONMENT["PATH"])
    ]
    missing += [] if os.access(SSHD, os.X_OK) else [SSHD]
    pythons = (os.path.realpath(f"/{folder}/python3") for folder in PYTHON_FOLDERS)
    # A python3 below /root is one that the user of the hosts may not run.
    if not any(os.access(at, os.X_OK) and not at.startswith("/root/") for at in pythons):
        missing.append("/usr/bin/python3")
    if missing:
        raise TestbedError(f"the test hosts need {', '.join(missing)}; run: bash .ci/parts")


class Hosts:
    def __init__(self, count: int = 4, inner: bool = True) -> None:
        self.names = (*(f"h{i + 1}" for i in range(count)), *([network.INNER] if inner else []))
        self._slot: Slot | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._pids: dict[str, int] = {}
        self._changed: set[str] = set()

    def __enter__(self) -> "Hosts":
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    # The set as a whole

    def up(self) -> None:
        """Start all hosts; nothing remains if one does not start."""
        check_parts()
        self._slot = claim()
        try:
            self._start_janitor()
            self._prepare()
            for name in self.names:
                self._start(name)
            for name in self.names:
                self._await_sshd(name, since=0)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Remove all hosts and everything they had on this machine."""
        if self._slot is None:
            return
        for name in list(self._running):
            self._stop(name)
        if self._janitor:
            _, said = self._janitor.communicate(timeout=30)
            if self._janitor.returncode:
                raise TestbedError(f"the test hosts were not removed: {said.decode()}")
        self._slot.release()
        self._slot = self._janitor = None

    def restore(self) -> None:
        """Undo, on every host that was changed, all that the methods below do."""
        for name in sorted(self._changed):
            self.heal(name)
            self.boot(name)
            self._free_disk(name)
            if FAKE_DRIVER in Path(f"/proc/{self.pid(name)}/mounts").read_text():
                self._inside(name, "umount", "/proc/driver")
            self._show_python(name)
            disk.set_gpus(self.root(name), [], [])
            self._configure_sshd(name, disk.sshd_config({}), self._key(name))
        self._changed.clear()

    def wipe(self) -> None:
        """End every process of the users of every running host, and empty their homes and /tmp."""
        wait_until(lambda: not self._killed_workers(), timeout=10)
        for name in self._pids:
            disk.empty(self.root(name) / "tmp")
            for user, uid in disk.ACCOUNTS.items():
                home = self.root(name) / "home" / user
                if home.is_dir():
                    disk.empty(home)
                    disk.authorize(home, uid, self._client_key())

    @property
    def ssh_config(self) -> Path:
        return self._folder / "ssh_config"

    # One host, from outside

    def run(
        self, name: str, argv: Sequence[str], input: str | None = None, timeout: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host through ssh."""
        ssh = ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", name, shlex.join(argv)]
        stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(ssh, capture_output=True, text=True, timeout=timeout, **stdin)

    def pid(self, name: str) -> int:
        """The host's process 1, as this machine numbers it."""
        # While its parent is there unreaped, the number cannot have become another's.
        if name not in self._pids or self._running[name].poll() is not None:
            raise TestbedError(f"host {name} is not running; its log:\n{self.log(name)}")
        return self._pids[name]

    def root(self, name: str) -> Path:
        """The host's file system, as seen from this machine."""
        return Path(f"/proc/{self.pid(name)}/root")

    def home(self, name: str) -> Path:
        return self.root(name) / "home" / disk.USER

    def address(self, name: str) -> str:
        return network.address(self._taken, name)

    def log(self, name: str) -> str:
        """What the host's sshd said."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    # What can happen to a host

    def cut(self, name: str) -> None:
        """Pull the network cable: silence, and the host goes on."""
        self._changed.add(name)
        network.disconnect(self._taken, name)

    def heal(self, name: str) -> None:
        network.connect(self._taken, name)

    def poweroff(self, name: str) -> None:
        """Cut the power: silence, and all processes are gone."""
        # The cable first: the kernel would say goodbye for the dying processes.
        self.cut(name)
        self._stop(name)

    def kill(self, name: str) -> None:
        """End all processes while the network stays: connections are refused."""
        self._changed.add(name)
        self._stop(name)

    def boot(self, name: str) -> None:
        """Start a host that was powered off or killed; its disk is as it was, its /tmp is new."""
        self.heal(name)
        if name in self._running and self._running[name].poll() is None:
            return
        self._stop(name)
        since = len(self.log(name))
        self._start(name)
        self._await_sshd(name, since)

    def set_gpus(
        self,
        name: str,
        gpus: Sequence[Mapping[str, object]],
        apps: Sequence[Mapping[str, object]] = (),
    ) -> None:
        """Let the host's nvidia-smi show these GPUs and programs; without GPUs it is gone.

        A GPU has index, uuid, name, memory_total, memory_used and utilization; an app has gpu_uuid,
        pid and used_memory; what is not given has a default.
        """
        self._changed.add(name)
        disk.set_gpus(self.root(name), gpus, apps)

    def sshd_options(self, name: str, options: Mapping[str, object]) -> None:
        """Restart the host's sshd with these options beside the usual ones; sessions stay."""
        self._changed.add(name)
        key = (self.root(name) / disk.HOST_KEY).read_bytes()
        self._configure_sshd(name, disk.sshd_config(options), key)

    def new_host_key(self, name: str) -> None:
        """Let the host show another key than the one known here."""
        self._changed.add(name)
        file = self._folder / "keys" / f"{name}.new"
        file.unlink(missing_ok=True)
        client.make_key(file)
        self._configure_sshd(
            name, (self.root(name) / disk.SSHD_CONFIG).read_text(), file.read_bytes()
        )

    def no_python(self, name: str) -> None:
        """Take every python off the host's PATH."""
        self._changed.add(name)
        for folder in PYTHON_FOLDERS:
            away = self.root(name) / HIDDEN_PYTHON / folder
            away.mkdir(parents=True, exist_ok=True)
            for python in (self.root(name) / folder).glob("python*"):
                python.rename(away / python.name)

    def fill_disk(self, name: str) -> None:
        """Give the worker a small home without a byte free; what was in it is out of sight."""
        self._changed.add(name)
        options = f"size=512k,mode=700,uid={disk.UID},gid={disk.UID}"
        home = f"/home/{disk.USER}"
        self._inside(name, "mount", "-t", "tmpfs", "-o", options, FULL_HOME, home)
        disk.authorize(self.home(name), disk.UID, self._client_key())
        with open(self.home(name) / "ballast", "wb", buffering=0) as ballast:
            try:
                while ballast.write(bytes(4096)):
                    pass
            except OSError:
                pass

    def show_driver(self, name: str, files: Mapping[str, str]) -> None:
        """Let the host have these files below /proc/driver."""
        self._changed.add(name)
        self._inside(name, "mount", "-t", "tmpfs", FAKE_DRIVER, "/proc/driver")
        for path, text in files.items():
            file = self.root(name) / "proc/driver" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    # Inner workings

    @property
    def _taken(self) -> Slot:
        if self._slot is None:
            raise TestbedError("the test hosts are not up")
        return self._slot

    @property
    def _folder(self) -> Path:
        return self._taken.folder

    def _key(self, name: str) -> bytes:
        return (self._folder / "keys" / name).read_bytes()

    def _client_key(self) -> bytes:
        return (self._folder / "keys" / "client.pub").read_bytes()

    def _start_janitor(self) -> None:
        slot = self._taken
        self._janitor = subprocess.Popen(
            [sys.executable, "-m", "testbed.janitor", str(slot.number), str(slot.lock)],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[slot.lock],
            start_new_session=True,
        )

    def _prepare(self) -> None:
        slot = self._taken
        (slot.folder / "keys").mkdir(parents=True, mode=0o700)
        slot.disk.mkdir()
        command("mount", "-t", "tmpfs", "-o", "mode=755", "testbed-disk", str(slot.disk))
        network.build(slot, self.names)
        lines = [f"{self.address(name)} {name}" for name in self.names]
        hosts_file = "\n".join(["127.0.0.1 localhost", *lines]) + "\n"
        for name in ("client", *self.names):
            client.make_key(slot.folder / "keys" / name)
        for name in self.names:
            for folder in ("upper", "work", "root"):
                (slot.disk / name / folder).mkdir(parents=True)
            upper = slot.disk / name / "upper"
            disk.seed(upper, name, hosts_file, self._key(name), self._client_key())
        client.write_config(slot.folder, {name: self.address(name) for name in self.names})

    def _start(self, name: str) -> None:
        slot = self._taken
        own = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL")
        enter = ("nsenter", f"--net={NETNS / slot.link(name)}", "unshare", *own)
        with open(slot.folder / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [*enter, "/bin/bash", str(HERE / "host_init.sh"), name, str(slot.disk / name)],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_sshd(self, name: str, since: int) -> None:
        process = self._running[name]

        def listens() -> bool:
            ended = process.poll() is not None
            return ended or "Server listening" in self.log(name)[since:]

        try:
            wait_until(listens, timeout=30)
        except TooLate:
            raise TestbedError(f"host {name} did not start:\n{self.log(name)[since:]}") from None
        if process.poll() is not None:
            raise TestbedError(f"host {name} ended at once:\n{self.log(name)[since:]}")
        # Known only now: before, its root was still that of this machine.
        self._pids[name] = _only_child(process.pid)

    def _stop(self, name: str) -> None:
        self._pids.pop(name, None)
        process = self._running.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            # Its process 1, which the kernel lets go only after all others of the host.
            os.kill(_only_child(process.pid) or process.pid, signal.SIGKILL)
        process.wait(timeout=10)

    def _killed_workers(self) -> list[int]:
        found = []
        for pid in processes_in([NETNS / self._taken.link(name) for name in self.names]):
            try:
                if os.stat(f"/proc/{pid}").st_uid in disk.ACCOUNTS.values():
                    os.kill(pid, signal.SIGKILL)
                    found.append(pid)
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def _inside(self, name: str, *argv: str) -> None:
        command("nsenter", f"--target={self.pid(name)}", "--mount", "--pid", *argv)

    def _configure_sshd(self, name: str, config: str, key: bytes) -> None:
        config_file, key_file = self.root(name) / disk.SSHD_CONFIG, self.root(name) / disk.HOST_KEY
        if config_file.read_text() == config and key_file.read_bytes() == key:
            return
        draft = config_file.with_name("testbed_sshd_draft")
        disk.put(draft, config)
        self._inside(name, SSHD, "-t", "-f", f"/etc/ssh/{draft.name}")
        disk.put(config_file, config)
        disk.put(key_file, key, mode=0o600)
        since = len(self.log(name))
        os.kill(self.pid(name), signal.SIGHUP)
        self._await_sshd(name, since)

    def _show_python(self, name: str) -> None:
        for folder in PYTHON_FOLDERS:
            for python in (self.root(name) / HIDDEN_PYTHON / folder).glob("python*"):
                python.rename(self.root(name) / folder / python.name)

    def _free_disk(self, name: str) -> None:
        if FULL_HOME in Path(f"/proc/{self.pid(name)}/mounts").read_text():
            self._inside(name, "umount", "--lazy", f"/home/{disk.USER}")


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0
