"""A real Grid Engine of two hosts, behind a head node that is reached by ssh.

    with GridEngine() as grid:
        grid.worker("bash", "-lc", "qstat")  # or: ssh -F grid.ssh_config msc
        grid.stop_master()                   # qsub and qstat get no answer

h1 is the head node (also called `msc`) and runs the qmaster; h2 and h3 run jobs, in four slots each
of the queue `cpu`, and h2 has two GPUs by a complex. They share the folder /home.
"""

from pathlib import Path

from . import disk, gridengine_files
from .daemons import QueueHosts, tail
from .gridengine_files import BINARIES, ROOT, SPOOL
from .hosts import check_parts
from .slot import TestbedError
from .waiting import TooLate, wait_until

HEAD = "h1"
NODES = ("h2", "h3")
QUEUE = "cpu"
PROGRAMS = ("sge_qmaster", "sge_execd", "qsub", "qconf", "spoolinit")
START_MODE = "unix_behavior"


class GridEngine(QueueHosts):
    environment = (
        f"PATH={BINARIES}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG=C.UTF-8",
        f"SGE_ROOT={ROOT}",
        "SGE_CELL=default",
    )

    def __init__(self) -> None:
        super().__init__(count=1 + len(NODES), inner=False)

    def up(self) -> None:
        """Start the hosts and their Grid Engine; nothing remains if a part does not start."""
        check_parts()
        missing = [one for one in PROGRAMS if not Path(BINARIES, one).exists()]
        if missing:
            raise TestbedError(
                f"the test Grid Engine needs {', '.join(missing)} in {BINARIES}; "
                "run: bash .ci/parts"
            )
        super().up()
        try:
            self._make_cell()
            for name in NODES:
                self._command(name, "sge_execd")
            self._await_nodes()
        except BaseException:
            self.down()
            raise

    def boot(self, name: str) -> None:
        before = self._pids.get(name)
        super().boot(name)
        if self._pids[name] != before:
            self._command(name, "sge_qmaster" if name == HEAD else "sge_execd")

    def restore(self) -> None:
        super().restore()
        if not self._daemon_pid("sge_qmaster"):
            self.start_master()
        self._answer("qmod", "-c", "*")
        self._answer("qmod", "-e", "*")
        if self._settings != (START_MODE, True):
            self.start_mode(START_MODE)
            self.tell_why(True)
        self.read_settings(True)
        self._await_nodes()

    def wipe(self) -> None:
        """Delete all jobs of the users, then end their processes and empty their homes."""
        for user in disk.ACCOUNTS:
            self._answer("qdel", "-u", user)
        wait_until(lambda: not self._answer("qstat", "-u", "*").strip(), timeout=90)
        super().wipe()

    # What can happen to a Grid Engine

    def stop_master(self) -> None:
        """Kill the qmaster; the jobs on the hosts go on."""
        self._kill("sge_qmaster")

    def start_master(self) -> None:
        """Start it again; for half a minute it hears of no host."""
        self._command(HEAD, "sge_qmaster")
        wait_until(lambda: bool(self._answer("qconf", "-sh")), timeout=60)

    def start_mode(self, mode: str) -> None:
        """How the queue starts scripts: `unix_behavior` heeds their first line, others do not."""
        self._settings = (mode, self._settings[1])
        self.control("qconf", "-mattr", "queue", "shell_start_mode", mode, QUEUE)

    def tell_why(self, tells: bool) -> None:
        """Whether the scheduler says of jobs that wait why they do."""
        self._settings = (self._settings[0], tells)
        self._configure("-Msconf", "schedule", gridengine_files.scheduler(tells))

    def read_settings(self, reads: bool) -> None:
        """Whether a login shell knows of the Grid Engine, or has to be told."""
        profile = self.root(HEAD) / gridengine_files.PROFILE
        if reads:
            disk.put(profile, f". {gridengine_files.SETTINGS}\n")
        else:
            profile.unlink(missing_ok=True)

    # Inner workings

    _settings = (START_MODE, True)

    def _prepare(self) -> None:
        super()._prepare()
        slot = self._taken
        home = slot.disk / "home"
        home.mkdir(mode=0o755)
        for user, uid in disk.ACCOUNTS.items():
            disk.authorize(home / user, uid, self._client_key())
        for name in self.names:
            gridengine_files.seed(slot.disk / name / "upper", HEAD)
        config = self.ssh_config.read_text()
        alias = f"Host msc\n  HostName {self.address(HEAD)}\n  HostKeyAlias {HEAD}\n"
        self.ssh_config.write_text(alias + config)

    def _make_cell(self) -> None:
        as_admin = ("setpriv", "--reuid=sgeadmin", "--regid=sgeadmin", "--clear-groups")
        resources = "/usr/share/gridengine/util/resources"
        for words in (
            f"spoolinit berkeleydb libspoolb {SPOOL}/spooldb init",
            f"spooldefaults configuration {SPOOL}/global",
            f"spooldefaults complexes {resources}/centry",
            f"spooldefaults usersets {resources}/usersets",
            "spooldefaults managers sgeadmin root",
        ):
            self._command(HEAD, *as_admin, *words.split())
        self.start_master()
        self.control("qconf", "-as", HEAD)
        complexes = self.control("qconf", "-sc") + "gpu gpu INT <= YES YES 0 0\n"
        self._configure("-Mc", "complexes", complexes)
        self.tell_why(True)
        for name in gridengine_files.ENVIRONMENTS:
            self._configure("-Ap", name, gridengine_files.environment(name))
        for name in NODES:
            self.control("qconf", "-ah", name)
            self.control("qconf", "-as", name)
            self._configure("-Ae", name, gridengine_files.host(name))
        self._configure("-Ahgrp", "hosts", gridengine_files.host_group(NODES))
        self._configure("-Aq", QUEUE, gridengine_files.queue(QUEUE, START_MODE))

    def _configure(self, option: str, name: str, text: str) -> None:
        path = f"{SPOOL}/{name}.conf"
        disk.put(self.root(HEAD) / path[1:], text)
        self.control("qconf", option, path)

    def _await_nodes(self) -> None:
        def all_heard() -> bool:
            rows = [line.split() for line in self._answer("qstat", "-f").splitlines()]
            states = {row[0]: row[5:] for row in rows if row and row[0].startswith(f"{QUEUE}@")}
            there = {f"{QUEUE}@{name}" for name in NODES}
            return states.keys() == there and not any(states.values())

        try:
            wait_until(all_heard, timeout=180, every=0.1)
        except TooLate:
            told = self._answer("qstat", "-f", "-explain", "E")
            logs = "\n".join(map(tail, self._logs()))
            raise TestbedError(f"the test Grid Engine did not start:\n{told}\n{logs}") from None

    def _logs(self) -> list[Path]:
        spool = {name: self.root(name) / SPOOL[1:] for name in self.names}
        found = [spool[HEAD] / "qmaster/messages"]
        return found + [spool[name] / f"execd/{name}/messages" for name in NODES]
