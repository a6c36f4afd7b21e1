"""A real Slurm of three nodes with GPUs, behind an access node that is reached by ssh.

    with Slurm() as slurm:
        slurm.run("h1", ["sinfo"])           # or: ssh -F slurm.ssh_config cedar sinfo
        slurm.stop_controller()              # sbatch and squeue get no answer

h1 is the access node (also called `cedar`) and runs the controller; h2 to h4 are the nodes, with
two GPUs each. They share the folder /home. Everything runs in the hosts' own namespaces.
"""

import errno
import os
import pwd
import shutil
from collections.abc import Iterable
from pathlib import Path

from . import disk
from .daemons import QueueHosts, tail
from .hosts import check_parts
from .slot import ENVIRONMENT, TestbedError
from .waiting import TooLate, wait_until

ACCESS = "h1"
NODES = ("h2", "h3", "h4")
GPUS = {"h2": "gtx1070", "h3": "gtx1070", "h4": "gtx1060"}
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
HOME = "/home"
#: A requeued job may start again after so long.
REQUEUE_S = 5

#: No control groups and no resource limits: this machine cannot give them.
_CONF = f"""\
ClusterName=cedar
SlurmctldHost={ACCESS}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire={REQUEUE_S}
StateSaveLocation=/var/spool/testbed-slurmctld
SlurmdSpoolDir=/var/spool/testbed-slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/testbed-slurmctld.log
SlurmdLogFile=/var/log/testbed-slurmd.log
PlugStackConfig=/dev/null
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=5
KillWait=5
CompleteWait=0
MinJobAge=300
InactiveLimit=0
MaxArraySize=1001
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1
DefMemPerCPU=100
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=short Nodes=h2 MaxTime=1 State=UP
"""
_NODE = "CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000"


def check_programs(programs: Iterable[str]) -> None:
    missing = [one for one in programs if not shutil.which(one, path=ENVIRONMENT["PATH"])]
    if missing:
        raise TestbedError(f"the test Slurm needs {', '.join(missing)}; run: bash .ci/parts")


class Slurm(QueueHosts):
    """The hosts of the cluster; what can happen to hosts can happen to its nodes."""

    def __init__(self) -> None:
        super().__init__(count=1 + len(NODES), inner=False)

    def up(self) -> None:
        """Start the hosts and their Slurm; nothing remains if a part does not start."""
        check_parts()
        check_programs(PROGRAMS)
        super().up()
        try:
            for name in self.names:
                self._start_daemons(name)
            self._await_nodes()
        except BaseException:
            self.down()
            raise

    def boot(self, name: str) -> None:
        before = self._pids.get(name)
        super().boot(name)
        if self._pids[name] != before:
            self._start_daemons(name)

    def restore(self) -> None:
        super().restore()
        if not self._daemon_pid("slurmctld"):
            self.start_controller()
        self.resume_nodes()
        self._await_nodes()

    def wipe(self) -> None:
        """Cancel all jobs of the worker, then end its processes and empty its home."""
        self.control("scancel", "--user", disk.USER)
        wait_until(self._is_empty, timeout=30, on_timeout=lambda: self.control("squeue"))
        wait_until(self._wiped, timeout=30)

    def _wiped(self) -> bool:
        """Nodes may start what a controller that was killed has forgotten: then it takes longer."""
        try:
            super().wipe()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
        return True

    def stop_controller(self) -> None:
        """Kill slurmctld; the jobs on the nodes go on."""
        self._kill("slurmctld")

    def start_controller(self) -> None:
        self._command(ACCESS, "slurmctld")
        wait_until(lambda: "h2" in self._answer("sinfo", "--noheader", "--Node"), timeout=30)

    def controller_log(self) -> str:
        """All that slurmctld has said since these hosts were started."""
        return (self.root(ACCESS) / "var/log/testbed-slurmctld.log").read_text(errors="replace")

    # Inner workings

    def _prepare(self) -> None:
        super()._prepare()
        slot = self._taken
        home = slot.disk / "home"
        home.mkdir(mode=0o755)
        disk.authorize(home / disk.USER, disk.UID, self._client_key())
        secret = os.urandom(128)
        for name in self.names:
            _seed(slot.disk / name / "upper", secret)
        config = self.ssh_config.read_text()
        address = self.address(ACCESS)
        alias = f"Host cedar\n  HostName {address}\n  HostKeyAlias {ACCESS}\n"
        self.ssh_config.write_text(alias + config)

    def _start_daemons(self, name: str) -> None:
        munge = pwd.getpwnam("munge")
        run = self.root(name) / "run/munge"
        run.mkdir(mode=0o755, exist_ok=True)
        os.chown(run, munge.pw_uid, munge.pw_gid)
        as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups")
        self._command(name, *as_munge, "munged", "--force", "--num-threads=2")
        self._start_slurm(name)

    def _start_slurm(self, name: str) -> None:
        self._command(name, "slurmctld" if name == ACCESS else "slurmd")

    def _await_nodes(self) -> None:
        def all_idle() -> bool:
            answer = self._answer("sinfo", "--noheader", "--Node", "-p", "main", "-o", "%N %T")
            states = dict(line.split() for line in answer.splitlines())
            known = set(states) == set(NODES) and all(s.isalpha() for s in states.values())
            # A controller that was started again knows of its nodes before it knows their GPUs.
            return known and "down" not in states.values() and self._takes_jobs()

        try:
            wait_until(all_idle, timeout=60, every=0.1)
        except TooLate:
            told = self._answer("sinfo", "-N", "-l")
            logs = "\n".join(tail(path) for path in self._logs())
            raise TestbedError(f"the test Slurm did not start:\n{told}\n{logs}") from None

    def resume_nodes(self) -> None:
        """A controller that was killed sets nodes aside whose jobs it finds there unexpectedly."""
        shown = self._answer("sinfo", "--noheader", "--Node", "-o", "%N %T")
        for line in dict.fromkeys(shown.splitlines()):
            name, state = line.split()
            if state.startswith(("drain", "down")):
                self._answer("scontrol", "update", f"nodename={name}", "state=resume")

    def _takes_jobs(self) -> bool:
        job = (f"--nodes={len(NODES)}", "--gres=gpu:1", "--wrap=true")
        try:
            self._command(ACCESS, "sbatch", "--test-only", *job)
        except TestbedError:
            return False
        return True

    def _logs(self) -> list[Path]:
        names = {name: "slurmctld" if name == ACCESS else "slurmd" for name in self._pids}
        return [self.root(host) / f"var/log/testbed-{log}.log" for host, log in names.items()]

    def _is_empty(self) -> bool:
        return not self._answer("squeue", "--noheader", "--user", disk.USER).strip()


def _seed(upper: Path, secret: bytes) -> None:
    """The configuration and the common secret of one host."""
    etc = upper / "etc/slurm"
    etc.mkdir(parents=True)
    nodes = "".join(f"NodeName={name} {_NODE} Gres=gpu:{GPUS[name]}:2\n" for name in NODES)
    head, partitions = _CONF.split("PartitionName", 1)
    disk.put(etc / "slurm.conf", f"{head}{nodes}PartitionName{partitions}")
    gres = (
        f"NodeName={n} Name=gpu Type={kind} File=/etc/slurm/gpu[0-1]\n" for n, kind in GPUS.items()
    )
    disk.put(etc / "gres.conf", "".join(gres))
    disk.put(etc / "cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    for index in (0, 1):
        # Slurm tells jobs of GPUs only where it finds devices; these are like /dev/null.
        os.mknod(etc / f"gpu{index}", 0o20666, os.makedev(1, 3))
    for daemon in ("slurmctld", "slurmd"):
        (upper / f"var/spool/testbed-{daemon}").mkdir(parents=True)
    munge = pwd.getpwnam("munge")
    folder = upper / "etc/munge"
    folder.mkdir(mode=0o700)
    disk.put(folder / "munge.key", secret, mode=0o400)
    for path in (folder, folder / "munge.key"):
        os.chown(path, munge.pw_uid, munge.pw_gid)
