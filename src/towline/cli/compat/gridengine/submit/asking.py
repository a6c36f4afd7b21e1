"""From what was typed behind `qsub` to what is asked of the Engine."""

from __future__ import annotations

import os
import re
import time

from towline.cli.compat.gridengine.submit import job_script, mail
from towline.cli.compat.gridengine.submit.place import Place, check_hosts, hosts_named
from towline.cli.compat.gridengine.submit.streams import input_here, input_there, streams
from towline.cli.compat.gridengine.submit.values import (
    allowed_priority,
    moment,
    resources,
    variables,
)
from towline.client.submission import environment, own_environment, this_folder, umask
from towline.model.names import QUEUES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.compat.gridengine.submit.wanted import Wanted
    from towline.client.session import Session


def ask_for(session: Session, wanted: Wanted) -> dict[str, Any]:
    options = wanted.options
    place = Place(session, options.get("-q", ""))
    cluster, here, kind = place.cluster, place.is_here, place.kind
    check_hosts(place, options.get("-l", ""))
    #: Resources that only a site's own Grid Engine can know.
    others: list[str] | None = [] if kind == "gridengine" else None
    ask: dict[str, Any] = {
        "argv": [*job_script.COMMAND, wanted.name, *wanted.argv],
        "cwd": wanted.folder,
        **own_environment(cluster, wanted.folder),
        "umask": umask(),
        "title": wanted.name,
        "cluster": cluster,
        "env": _variables(wanted, place),
        **resources(options.get("-l", ""), others, _slots(options) if others is not None else 1),
    }
    if "-pe" in options and kind != "gridengine":
        ask["cpus"] = str(_slots(options))
    if "-p" in options:
        ask["priority"] = max(-1000, allowed_priority(options["-p"]))
    if "-hold_jid" in options:
        ask["after_any"] = _held_by(session, options["-hold_jid"])
    if "-h" in options:
        ask["hold"] = True
    if "-a" in options:
        ask["begin"] = moment(options["-a"], time.time())
    if here:
        # As on a Grid Engine, whose machines share the home: in the very folder.
        ask.update(in_place=True, only=[])
    elif not wanted.travels:
        ask.update(cwd=wanted.here, only=list(filter(None, [input_there(wanted)[1]])))
    if not here and (written := _written_to(options.get("-v", ""))):
        ask["back"] = [".", *written]
    if kind in QUEUES:
        ask["requeue"] = wanted.on("-r")
        ask["options"] = _for_queue(place, options, others or [])
    return ask


def is_here(ask: dict[str, Any]) -> bool:
    return bool(ask.get("in_place"))


def _slots(options: dict[str, str]) -> int:
    """Of its parallel environment; the least, where that is a range."""
    found = re.search(r"\d+", options.get("-pe", " 1").split(" ")[1])
    return max(1, int(found[0])) if found else 1


def _for_queue(place: Place, options: dict[str, str], others: list[str]) -> dict[str, str]:
    """What goes to a queue in its own words: to a Grid Engine whatever it alone understands."""
    if place.kind == "gridengine":
        native = {
            "q": ",".join(place.queues),
            "pe": options.get("-pe", ""),
            "l": ",".join(others),
            "P": options.get("-P", ""),
            "p": options.get("-p", ""),
            "M": options.get("-M", ""),
            "m": options.get("-m", ""),
        }
    else:
        low = -allowed_priority(options.get("-p", "0"))
        partitions = dict.fromkeys(one.partition("@")[0] for one in place.queues)
        native = {
            "partition": ",".join(name for name in partitions if name != "*"),
            "nodelist": ",".join(hosts_named(place, options.get("-l", ""))),
            "nice": str(low) if low else "",
            **mail.for_slurm(options),
        }
    return {name: value for name, value in native.items() if value}


def _written_to(text: str) -> list[str]:
    """Variables that name a folder of the home over there to write to: it comes home, too."""
    found = variables(text, {})
    below_home = ("$HOME/", "${HOME}/", "~/")
    return [
        f"${name}"
        for name, value in found.items()
        if value.startswith(below_home) and re.search("OUT|RESULT", name)
    ]


#: What is so on this machine only: also a Grid Engine does not take these over (`-V`).
_OF_ONE_MACHINE = re.compile(
    r"(HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|TMPDIR|TMP|HOSTNAME|TERM|SHLVL|DISPLAY|_)\Z"
    r"|(SSH_|XDG_|DBUS_|BASH_FUNC_)"
)
#: What a Grid Engine tells a job by itself.
_ITS_OWN = ("QUEUE", "NSLOTS", "NHOSTS", "NQUEUES", "RESTARTED")


def _variables(wanted: Wanted, place: Place) -> dict[str, str]:
    options, here = wanted.options, place.is_here
    own = variables(options.get("-v", ""), dict(os.environ))
    tasks = wanted.tasks
    about = {
        "JOB_NAME": wanted.name,
        "REQUEST": wanted.name,
        "REQNAME": wanted.name,
        "QUEUE": place.name,
        "ENVIRONMENT": "BATCH",
        "NSLOTS": str(_slots(options)),
        "NHOSTS": "1",
        "NQUEUES": "1",
        "RESTARTED": "0",
        "SGE_O_WORKDIR": this_folder(),
        "SGE_O_HOME": os.path.expanduser("~"),
        "SGE_O_LOGNAME": os.environ.get("LOGNAME") or os.environ.get("USER", ""),
        "SGE_O_PATH": os.environ.get("PATH", ""),
        "SGE_O_SHELL": os.environ.get("SHELL", ""),
        "SGE_O_HOST": os.uname().nodename,
        "SGE_TASK_ID": "undefined",
        "SGE_TASK_FIRST": str(tasks.first) if tasks else "undefined",
        "SGE_TASK_LAST": str(tasks.last) if tasks else "undefined",
        "SGE_TASK_STEPSIZE": str(tasks.step) if tasks else "undefined",
    }
    if place.kind == "gridengine":
        about = {name: value for name, value in about.items() if name not in _ITS_OWN}
    exact = wanted.binary and options.get("-shell", "y")[:1] == "n"
    mode = "exact" if exact else "binary" if wanted.binary else "script"
    about[job_script.JOB] = job_script.TEXT
    about[job_script.MODE] = mode
    about[job_script.SCRIPT] = wanted.script
    about[job_script.BESIDE] = wanted.beside if here else "."
    about[job_script.SHELL] = options.get("-S", "").rpartition(":")[2]
    about[job_script.EXPAND] = " ".join(own)
    about[job_script.IN] = input_here(wanted) if here else input_there(wanted)[0]
    if here:
        about[job_script.OUT], about[job_script.ERR] = streams(wanted)
    elif wanted.on("-j"):
        about[job_script.OUT] = "joined"
    taken = environment() if "-V" in options else {}
    if here:
        # Whatever else there is, a job on this machine has in any case.
        taken = {name: value for name, value in taken.items() if name in own}
    else:
        taken = {name: value for name, value in taken.items() if not _OF_ONE_MACHINE.match(name)}
    # As with a real one, -V wins over -v.
    return {**about, **own, **taken}


def _held_by(session: Session, text: str) -> list[str]:
    """Numbers, names and patterns of jobs that have not ended; others hold nothing."""
    from towline.cli.compat.gridengine.listing import Entries

    entries = Entries(session)
    found: dict[str, None] = {}
    for name in filter(None, text.split(",")):
        for entry in entries.called(name):
            found[entry.batch or str(entry.number)] = None
    return list(found)
