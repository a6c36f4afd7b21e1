"""The `tow` command: finds the one command that was typed and imports nothing else."""

from __future__ import annotations

import os
import sys

from towline.cli.terminal import complain, say, tell
from towline.errors import TowlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import NoReturn

#: Every command by what it is for; the name is also that of its module in `commands/`.
COMMANDS = {
    "Run": {
        "run": "run a command as a job and follow it",
        "batch": "run many commands as one batch and follow it",
        "sweep": "run a command with every combination of values",
        "attach": "follow a job again, from the start of its output",
        "wait": "wait until jobs have ended",
        "stop": "stop jobs",
        "retry": "run ended jobs again",
        "rm": "forget ended jobs, and what is kept of them on machines",
    },
    "Look": {
        "status": "list jobs and where they stand",
        "show": "everything about one job",
        "log": "print a job's output",
        "why": "say why a job waits, machine by machine",
    },
    "Reach into a job": {
        "ls": "list a job's files",
        "cat": "print one of a job's files",
        "pull": "copy files of a job to here",
        "push": "copy files from here to a job",
        "mount": "show a job's folder as a folder here",
        "exec": "run a command beside a job",
        "forward": "reach a port of a job from this machine",
        "services": "list what runs beside jobs, with the URLs",
        "open": "open a service of a job in the browser",
        "tensorboard": "show what several jobs wrote in one TensorBoard",
    },
    "Results and versions": {
        "results": "bring home what a job has made so far",
        "diff": "what changed since a job was submitted",
        "checkout": "bring the submitted version back as a folder",
        "snapshots": "list and forget the records of dirty trees",
    },
    "As on a Grid Engine": {
        "qsub": "submit a script or a command",
        "qstat": "list what has not ended",
        "qdel": "stop jobs",
        "qhold": "hold jobs that have not begun",
        "qrls": "let jobs go that are held",
        "qhost": "list machines",
        "qacct": "tell how jobs ended",
        "shims": "write these under their own names, for other tools",
    },
    "Places": {
        "clusters": "list, add and remove clusters",
        "machines": "list machines and what is free on them",
        "trust": "let a project's towline.toml decide what runs where",
        "login": "type a password or second factor for a machine, once",
        "doctor": "check every cluster step by step",
        "gc": "remove what ended jobs left on machines",
        "engine": "look at, end or debug the Engine behind `tow`",
        "server": "make and run the server of a team",
        "completion": "let your shell complete what you type behind `tow`",
    },
}
BROKEN_PIPE_CODE = 141
INTERRUPTED_CODE = 130


def main() -> None:
    leave("tow", dispatch)


def leave(program: str, command: Callable[[list[str]], int]) -> NoReturn:
    """Run a command with what was typed, and end with its exit code."""
    code = run(program, command, sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        pass
    # At once: taking the interpreter apart costs time and gives nothing.
    os._exit(code)


def run(program: str, command: Callable[[list[str]], int], args: list[str]) -> int:
    """One command; its exit code. Errors are told to people, never as a traceback."""
    try:
        return command(args)
    except TowlineError as error:
        return complain(program, error)
    except BrokenPipeError:
        return BROKEN_PIPE_CODE
    except KeyboardInterrupt:
        tell("")
        return INTERRUPTED_CODE
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception as error:
        if os.environ.get("TOWLINE_DEBUG"):
            raise
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        hint = "to see where, set TOWLINE_DEBUG=1 and do it again"
        return complain(program, TowlineError(text, hint))


def command_names() -> list[str]:
    return [name for commands in COMMANDS.values() for name in commands]


def load(name: str) -> ModuleType:
    """The module of one command."""
    from importlib import import_module

    return import_module(f"towline.cli.commands.{name}")


def dispatch(args: list[str]) -> int:
    """What is typed behind `tow`, done by the command it names; `@NAME`: of that server."""
    if args and args[0].startswith("@") and len(args[0]) > 1:
        from towline.client.servers import VARIABLE

        os.environ[VARIABLE], args = args[0][1:], args[1:]
    name = args[0] if args else "help"
    if name in ("help", "-h", "--help"):
        topics = [word for word in args[1:2] if not word.startswith("-")]
        if not topics:
            say(overview())
            return 0
        name, args = topics[0], ["", "--help"]
    if name in ("-V", "--version", "version"):
        from towline.version import __version__

        say(f"tow {__version__}")
        return 0
    if not any(name in commands for commands in COMMANDS.values()):
        raise UsageError(f"there is no command `{name}`", _suggestion(name))
    code: int = load(name).main(args[1:])
    return code


def overview() -> str:
    """What `tow --help` shows."""
    lines = ["usage: tow COMMAND [options]", ""]
    lines += ["Put one word in front of a command, and it runs on whatever compute you have."]
    for group, commands in COMMANDS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<11} {summary}" for name, summary in commands.items()]
    lines += ["", "tow help COMMAND says more, with examples. First of all: tow run COMMAND"]
    return "\n".join(lines)


#: What commands are called elsewhere, and what does that here.
ELSEWHERE = {
    "status": ("ps", "ls-jobs", "queue", "squeue", "jobs", "list", "top", "sacct", "st"),
    "stop": ("cancel", "kill", "scancel", "abort", "down", "delete"),
    "attach": ("follow", "watch"),
    "log": ("logs", "tail", "output", "cat-log"),
    "run": ("submit", "start", "launch", "exec-job", "sbatch", "srun"),
    "exec": ("ssh", "shell", "connect", "bash", "enter"),
    "retry": ("rerun", "restart", "resubmit", "requeue", "again", "resume"),
    "machines": ("sinfo", "nodes", "hosts", "gpus", "free", "nvidia-smi"),
    "clusters": ("cluster", "config", "add"),
    "results": ("result", "fetch", "download", "get"),
    "gc": ("rm", "remove", "clean", "cleanup", "prune", "clear"),
    "show": ("info", "describe", "inspect"),
    "tensorboard": ("tb",),
    "forward": ("port-forward", "tunnel"),
}
#: What else there is to say.
BESIDES = {
    "run": "a JSON file of cluster_tools: submit -c=FILE COMMAND",
    "exec": "runs a command beside a job; there is no terminal in jobs yet",
    "stop": "what ended jobs left behind goes with: tow gc",
}


def _suggestion(name: str) -> str:
    import difflib

    for command, words in ELSEWHERE.items():
        if name in words:
            more = f" ({BESIDES[command]})" if command in BESIDES else ""
            return f"that is `tow {command}` here{more}; all commands: tow help"

    close = difflib.get_close_matches(name, command_names(), n=1)
    if close:
        return f"did you mean `tow {close[0]}`? all commands: tow help"
    if name.startswith("-"):
        return "options stand behind the command: tow help"
    return f"to run it as a job: tow run {name}; all commands: tow help"


if __name__ == "__main__":
    main()
