"""What Slurm's word means for a job whose own files are silent. Pure.

The files of the runner are the truth and Slurm's word comes second; where neither knows, the job is
lost, never failed.
"""

from towline.backends.queue.dialect import Verdict
from towline.backends.queue.job_script import NO_PYTHON, NOT_SHARED
from towline.model.job import Ending
from towline.probes.slurm import ENDED, SlurmEntry, why_waiting

#: As Slurm says it that the node could not write a job's output where it was told to.
_NO_OUTPUT = "0:53"
#: As the accounts say of an earlier run why it was not the last.
_TAKEN_BACK = {
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node could not be started",
    "PREEMPTED": "Slurm gave its place to another job",
    "TIMEOUT": "its time limit came",
    "REQUEUED": "somebody, or the site, had it requeued",
}
#: Ends that are no fault of the job: one that had not begun can begin elsewhere.
_OF_THE_NODE = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED"})
#: As Slurm's own programs say on a node that a job took more memory than it may.
_TOO_MUCH = ("exceeded memory limit", "exceeded job memory", "exceeded step memory", "oom_kill ")
_CAUSES = {
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "TIMEOUT": "timeout",
    "OUT_OF_MEMORY": "oom",
}


def verdict(listed: SlurmEntry, said: str, claimed: bool, now: float) -> Verdict:
    """What the end of an entry means for the attempt that it was to run."""
    return Verdict(
        ending_by_slurm(listed, said, claimed, now),
        certain=is_certain(listed),
        killed=took_too_much(said),
        not_begun=ENDED[listed.state] if never_began(listed) else "",
        cancelled=listed.state == "CANCELLED",
        cause=_CAUSES.get(listed.state, ""),
        reason=ENDED.get(listed.state, ""),
    )


def why_taken_back(states: list[str], node_is_down: bool) -> str:
    """Why Slurm starts a job again by itself; empty where nothing tells."""
    told = next((_TAKEN_BACK[state] for state in reversed(states) if state in _TAKEN_BACK), "")
    return _TAKEN_BACK["NODE_FAIL"] if node_is_down else told


def can_never(listed: SlurmEntry) -> bool:
    """Slurm lets it wait for ever: what the user makes it depend on ended otherwise."""
    return listed.reason == "DependencyNeverSatisfied"


def was_refused(listed: SlurmEntry) -> bool:
    """Slurm lists even jobs that it did not accept."""
    return listed.state == "FAILED" and listed.reason == "BadConstraints" and not listed.nodes


def never_began(listed: SlurmEntry) -> bool:
    """Of what nobody saw begin: it ended with its node, and nothing but that was wrong with it."""
    return listed.state in _OF_THE_NODE


def is_certain(listed: SlurmEntry) -> bool:
    """Slurm's word explains the end: no record of it is to be waited for."""
    return bool(ENDED.get(listed.state, "") or _trouble_of_the_node(listed))


def took_too_much(said: str) -> bool:
    """Slurm killed it for the memory it took, whatever it calls its end."""
    lines = (line.lower() for line in said.splitlines() if line.startswith(("slurmstepd", "srun")))
    return any(sign in line.replace("oom-kill", "oom_kill") for line in lines for sign in _TOO_MUCH)


def ending_by_slurm(listed: SlurmEntry, said: str, started: bool, now: float) -> Ending:
    """The end of a process that left no record of its own."""
    if took_too_much(said):
        return Ending(cause="oom", text=ENDED["OUT_OF_MEMORY"], ended=now)
    if can_never(listed) and not started:
        return Ending(cause="skipped", text=why_waiting(listed), ended=now)
    text = _trouble_of_the_node(listed)
    if not text:
        text = ENDED.get(listed.state, "") or _unexplained(listed)
        if listed.state not in _CAUSES and (last := _last_words(said)):
            text += f"; it said: {last}"
    # What Slurm calls completed has run, wherever its record is.
    unknown = started or listed.state == "COMPLETED"
    cause = _CAUSES.get(listed.state, "lost" if unknown else "failed")
    return Ending(cause=cause, text=text, ended=now)


def _trouble_of_the_node(listed: SlurmEntry) -> str:
    code = listed.exit_code.partition(":")[0]
    if code == str(NOT_SHARED) or listed.exit_code == _NO_OUTPUT:
        return "its node does not see Towline's folder: set `folder` to one that all nodes share"
    return "there is no python3 on its node" if code == str(NO_PYTHON) else ""


def _unexplained(listed: SlurmEntry) -> str:
    code, _, signal = listed.exit_code.partition(":")
    how = f" with exit code {code}" if code not in ("", "0") else ""
    how = f" by signal {signal}" if signal not in ("", "0") else how
    return f"Slurm says {listed.state}{how}, but there is no record of how it ended"


def _last_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
