"""What Grid Engine's word means for a job whose own files are silent. Pure.

Its exit status means something only where `failed` says that the job ran.
"""

import re

from towline.backends.queue.dialect import Verdict
from towline.backends.queue.job_script import NO_PYTHON, NOT_SHARED
from towline.model.job import Ending
from towline.model.units import format_duration
from towline.probes.gridengine import JobAccount

#: `failed`: it ran and its exit status counts; killed; a limit; taken back into the queue.
_RAN = frozenset({0, 30})
_KILLED, _LIMIT, TAKEN_BACK = 100, 37, 25
_DELETED = "it was deleted in Grid Engine (qdel) or killed on its host, and not by tow"
_STOPPED = "stopped before it started"
_VANISHED = "it was deleted in Grid Engine (qdel), and not by tow"


def verdict(one: JobAccount, said: str, claimed: bool, now: float) -> Verdict:
    """What the end of an entry means for the attempt that it was to run."""
    if one.failed == _LIMIT:
        cause, text = _limit(one)
        ending = Ending(cause=cause, text=text, ended=now)
        return Verdict(ending, certain=True, killed=True, cause=cause, reason=text)
    if one.failed == _KILLED:
        ending = Ending(cause="cancelled", text=_DELETED, ended=now)
        return Verdict(
            ending, certain=True, killed=True, cancelled=True, cause="cancelled", reason=_DELETED
        )
    if one.failed in _RAN:
        return _ran(one, said, claimed, now)
    text = f"its host {one.host} failed: {one.failure or one.failed}"
    ending = Ending(cause="lost" if claimed else "failed", text=text, ended=now)
    return Verdict(ending, certain=True, not_begun=text)


def vanished(claimed: bool, stopped: bool, now: float) -> Verdict | None:
    """A Grid Engine forgets no job that waits: what is gone without a record was deleted."""
    if claimed:
        return None
    text = _STOPPED if stopped else _VANISHED
    ending = Ending(cause="cancelled", text=text, ended=now)
    return Verdict(ending, certain=stopped, cancelled=True, cause="cancelled", reason=text)


def _ran(one: JobAccount, said: str, claimed: bool, now: float) -> Verdict:
    trouble = _trouble(one)
    text = trouble or (
        f"Grid Engine says exit code {one.exit_status}, but there is no record of how it ended"
    )
    if not trouble and (last := _last_words(said)):
        text += f"; it said: {last}"
    unknown = claimed or one.exit_status == 0
    ending = Ending(cause="lost" if unknown else "failed", text=text, ended=now)
    return Verdict(ending, certain=bool(trouble))


def _trouble(one: JobAccount) -> str:
    if one.exit_status == NOT_SHARED:
        return "its host does not see Towline's folder: set `folder` to one that all hosts share"
    return f"there is no python3 on {one.host}" if one.exit_status == NO_PYTHON else ""


def _limit(one: JobAccount) -> tuple[str, str]:
    asked = re.search(r"\bh_rt=(\d+)\b", one.category)
    if asked and one.wallclock_s >= (limit_s := int(asked[1])) - 1:
        limit = f"{limit_s} s" if limit_s < 60 else format_duration(float(limit_s))
        return "timeout", f"ran into its time limit ({limit})"
    if most := re.search(r"\b[hs]_vmem=[^,\s]+", one.category):
        return "oom", f"went over its memory ({most[0]})"
    return "timeout", "Grid Engine stopped it at a limit of its queue (h_rt, h_cpu or h_vmem)"


def _last_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
