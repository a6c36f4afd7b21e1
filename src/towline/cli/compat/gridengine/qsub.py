"""`tow qsub`: a job as Grid Engine's users submit it, on any kind of cluster."""

from __future__ import annotations

import os
import re
import sys
import time

from towline.cli.compat.gridengine import job_script
from towline.cli.compat.gridengine.options import (
    Refused,
    Tasks,
    check_name,
    moment,
    read_script,
    read_words,
    rejected,
    resources,
    variables,
)
from towline.cli.session import open_session
from towline.client.submission import environment, new_key, own_environment, this_folder, umask
from towline.errors import TowlineError
from towline.model.names import QUEUES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

#: The kernel takes no longer variable.
LONGEST_SCRIPT = 120_000


class Wanted:
    """One submission: its options, its script and its arguments."""

    def __init__(self, words: list[str]) -> None:
        typed, rest = read_words(words)
        self.binary = typed.get("-b") == "y"
        self.script, default, self.beside = "", "", ""
        if self.binary:
            if not rest:
                raise Refused("qsub: command required for a binary job", 1)
            self.argv, default = rest, os.path.basename(rest[0].split(" ")[0])
        else:
            self.script, default = _script(rest)
            self.argv = rest[1:]
            #: Where the script is, and what it may import.
            self.beside = os.path.dirname(os.path.abspath(rest[0])) if rest else ""
        embedded = {} if self.binary else read_script(self.script, typed.get("-C", "#$"))
        self.options = {**embedded, **typed}
        self.name = check_name(self.options.get("-N", default))
        self.tasks = Tasks(self.options["-t"]) if "-t" in self.options else None
        if self.on("-now") and self.tasks:
            raise Refused("qsub: option -now y is not supported here with -t", 1)
        self.folder = self._folder()

    def on(self, option: str, default: str = "n") -> bool:
        return self.options.get(option, default)[:1].lower() == "y"

    def _folder(self) -> str:
        if "-wd" in self.options:
            return os.path.abspath(os.path.expanduser(self.options["-wd"]))
        return this_folder() if "-cwd" in self.options else os.path.expanduser("~")


def _script(rest: list[str]) -> tuple[str, str]:
    """The text of the script, and what a job of it is called."""
    lead = "Unable to read script file because of error: "
    path = rest[0] if rest else "-"
    if path == "-":
        text = sys.stdin.read() if not sys.stdin.isatty() else ""
        if not text:
            raise Refused(f"{lead}no input read from stdin", 4)
        return text, "STDIN"
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except IsADirectoryError:
        text = f'error: fread("{path}") failed: Is a directory'
        raise Refused(f"{text}\n{lead}error reading from file {path}", 4) from None
    except OSError as error:
        raise Refused(f"{lead}error opening {path}: {error.strerror}", 14) from None
    if len(text) > LONGEST_SCRIPT:
        raise Refused(f"{lead}{path} is longer than {LONGEST_SCRIPT} characters", 4)
    return text, os.path.basename(path)


def main(words: list[str]) -> int:
    try:
        return submit(Wanted(words))
    except Refused as error:
        sys.stderr.write(error.text + "\n")
        return error.code_of_qsub
    except TowlineError as error:
        # A queue's own words are Grid Engine's, where it is one.
        text = getattr(error, "said", "") or error.text
        hint = f"\n{error.hint}" if error.hint else ""
        sys.stderr.write(f"Unable to run job: {text}{hint}\nExiting.\n")
        return 1


def submit(wanted: Wanted) -> int:
    session = open_session()
    ask = _ask(session, wanted)
    if wanted.options.get("-w", "n") in ("v", "p") or "-verify" in wanted.options:
        session.call("POST", "/v1/plan", ask, repeat=True)
        print("verification: found suitable queue(s)")
        return 0
    if wanted.tasks is None:
        number = int(session.submit_ask(ask, new_key())["id"])
        said = f'Your job {number} ("{wanted.name[:100]}") has been submitted'
        terse = str(number)
    else:
        number = _submit_array(session, wanted, wanted.tasks, ask)
        terse = f"{number}.{wanted.tasks}"
        said = f'Your job-array {terse} ("{wanted.name[:100]}") has been submitted'
    print(terse if wanted.on("-terse") else said, flush=True)
    if wanted.on("-now"):
        from towline.cli.compat.gridengine.at_once import start_at_once

        if not start_at_once(session, number):
            return 1
    if not _is_here(ask):
        from towline.cli.compat.gridengine.outputs import bring

        bring(number, wanted.tasks, _streams(wanted))
    return _wait(session, number, wanted.tasks) if wanted.on("-sync") else 0


def _submit_array(session: Session, wanted: Wanted, tasks: Tasks, ask: dict[str, Any]) -> int:
    lines = [
        {
            "argv": ask["argv"],
            "title": wanted.name,
            "number": task,
            "env": {"SGE_TASK_ID": str(task), job_script.OFFSET: str(place)},
        }
        for place, task in enumerate(tasks.numbers)
    ]
    most = wanted.options.get("-tc", "0")
    if not most.isdecimal():
        raise Refused(f'qsub: invalid option argument "-tc {most}"', 7)
    batch = {"name": wanted.name, "base": ask, "lines": lines, "max_parallel": int(most)}
    return int(session.once("/v1/batches", batch, new_key())["batch"]["first"])


def _ask(session: Session, wanted: Wanted) -> dict[str, Any]:
    options = wanted.options
    cluster, queue, here = _place(session, options.get("-q", ""))
    kind = "" if here else _kind(session, cluster)
    #: Resources that only a site's own Grid Engine can know.
    others: list[str] | None = [] if kind == "gridengine" else None
    ask: dict[str, Any] = {
        "argv": ["/bin/sh", "-c", job_script.TEXT, wanted.name, *wanted.argv],
        "cwd": wanted.folder,
        **own_environment(cluster, wanted.folder),
        "umask": umask(),
        "title": wanted.name,
        "cluster": cluster,
        "env": _variables(wanted, queue, here),
        **resources(options.get("-l", ""), others),
    }
    if "-pe" in options and kind != "gridengine":
        ask["cpus"] = (re.search(r"\d+", options["-pe"].split(" ")[1]) or [""])[0]
    if "-p" in options:
        ask["priority"] = _priority(options["-p"])
    if "-hold_jid" in options:
        ask["after_any"] = _held_by(session, options["-hold_jid"])
    if "-h" in options:
        ask["hold"] = True
    if "-a" in options:
        ask["begin"] = moment(options["-a"], time.time())
    if here:
        # As on a Grid Engine, whose machines share the home: in the very folder.
        ask.update(in_place=True, only=[])
    elif "-cwd" not in options and "-wd" not in options:
        ask.update(cwd=this_folder(), only=[])
    if not here and (written := _written_to(options.get("-v", ""))):
        ask["back"] = [".", *written]
    if kind in QUEUES:
        ask["requeue"] = wanted.on("-r")
        ask["options"] = _for_queue(kind, options, queue if queue != cluster else "", others or [])
    return ask


def _for_queue(kind: str, options: dict[str, str], queue: str, others: list[str]) -> dict[str, str]:
    """What goes to a queue in its own words: to a Grid Engine whatever it alone understands."""
    if kind != "gridengine":
        return {"partition": queue} if queue else {}
    native = {
        "q": queue,
        "pe": options.get("-pe", ""),
        "l": ",".join(others),
        "P": options.get("-P", ""),
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


def _clusters(session: Session) -> list[dict[str, Any]]:
    from towline.client.transport import with_query

    found: list[dict[str, Any]] = session.call(
        "GET", with_query("/v1/clusters", cwd=this_folder())
    )["clusters"]
    return found


def _kind(session: Session, name: str) -> str:
    return next((one["kind"] for one in _clusters(session) if one["name"] == name), "")


def _place(session: Session, queues: str) -> tuple[str, str, bool]:
    """The cluster, the queue as it is called, and whether that is this very machine."""
    clusters = {one["name"]: one for one in _clusters(session)}
    queue = queues.split(",")[0].partition("@")[0]
    default = next((name for name, one in clusters.items() if one["default"]), "local")
    name = queue if queue in clusters else default
    found = clusters.get(name) or {}
    here = name == "local" and found.get("kind") == "machines"
    if queue and queue not in clusters and found.get("kind") == "machines" and not here:
        raise rejected(f'Job was rejected because job requests unknown queue "{queue}"')
    return name, queue or name, here


def _variables(wanted: Wanted, queue: str, here: bool) -> dict[str, str]:
    options = wanted.options
    own = variables(options.get("-v", ""), dict(os.environ))
    tasks = wanted.tasks
    about = {
        "JOB_NAME": wanted.name,
        "REQUEST": wanted.name,
        "REQNAME": wanted.name,
        "QUEUE": queue,
        "ENVIRONMENT": "BATCH",
        "NSLOTS": (re.search(r" (\d+)", options.get("-pe", " 1")) or ["", "1"])[1],
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
    exact = wanted.binary and options.get("-shell", "y")[:1] == "n"
    mode = "exact" if exact else "binary" if wanted.binary else "script"
    about[job_script.MODE] = mode
    about[job_script.SCRIPT] = wanted.script
    about[job_script.BESIDE] = wanted.beside if here else "."
    about[job_script.SHELL] = options.get("-S", "")
    about[job_script.EXPAND] = " ".join(own)
    about[job_script.IN] = _below(wanted, options["-i"]) if "-i" in options else ""
    if here:
        about[job_script.OUT], about[job_script.ERR] = _streams(wanted)
    elif wanted.on("-j"):
        about[job_script.OUT] = "joined"
    taken = environment() if "-V" in options and not here else {}
    # As with a real one, -V wins over -v.
    return {**about, **own, **taken}


def _streams(wanted: Wanted) -> tuple[str, str]:
    """Where output and errors go, with `$JOB_ID` and `$TASK_ID` for what is known later."""
    out = _stream(wanted, wanted.options.get("-o", ""), "o")
    return out, out if wanted.on("-j") else _stream(wanted, wanted.options.get("-e", ""), "e")


def _stream(wanted: Wanted, path: str, letter: str) -> str:
    name = f"{wanted.name}.{letter}$JOB_ID" + (".$TASK_ID" if wanted.tasks else "")
    # A host in front of the path says where it is valid.
    path = path.rpartition(":")[2]
    for token, value in (
        ("$HOME", os.path.expanduser("~")),
        ("$USER", os.environ.get("USER", "")),
        ("$JOB_NAME", wanted.name),
    ):
        path = path.replace(token, value)
    path = os.path.expanduser(path)
    whole = _below(wanted, path) if path else wanted.folder
    folder = not path or path.endswith("/") or os.path.isdir(whole)
    return os.path.join(whole, name) if folder else whole


def _below(wanted: Wanted, path: str) -> str:
    return os.path.join(wanted.folder, os.path.expanduser(path.rpartition(":")[2]))


def _priority(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise Refused(f'qsub: invalid priority "{text}"', 7) from None
    if not -1023 <= number <= 1024:
        raise Refused("qsub: invalid priority, must be an integer from -1023 to 1024", 7)
    if number > 0:
        denied = "job rejected: positive submission priority requires operator privileges"
        raise rejected(denied)
    return max(-1000, number)


def _held_by(session: Session, text: str) -> list[str]:
    """Numbers, names and patterns of jobs that have not ended; others hold nothing."""
    from towline.cli.compat.gridengine.listing import Entries

    entries = Entries(session)
    found: dict[str, None] = {}
    for name in filter(None, text.split(",")):
        for entry in entries.called(name):
            found[entry.batch or str(entry.number)] = None
    return list(found)


def _is_here(ask: dict[str, Any]) -> bool:
    return bool(ask.get("in_place"))


def _wait(session: Session, number: int, tasks: Tasks | None) -> int:
    """Until it has ended; its exit code, or that of the first task that did not end well."""
    from towline.client.waiting import WaitingForJobs

    names = dict(zip(range(number, number + 75001), tasks.numbers, strict=False)) if tasks else {}
    worst = 0
    for view in WaitingForJobs(session, list(names) or [number], []).ends():
        code = view["exit_code"]
        who = f"{number}.{names[view['id']]}" if tasks else str(number)
        if code is None:
            sys.stderr.write(f"Unable to run job {who}\n")
            worst = worst or 1
        elif code:
            sys.stderr.write(f"Job {who} exited with exit code {code}.\n")
            worst = worst or code
        else:
            print(f"Job {who} exited with exit code 0.", flush=True)
    return worst
