"""`tow run`: one word in front of a command."""

from __future__ import annotations

import os
from os.path import exists

from towline.cli.not_yet import check_terminal, say_directives, say_input_is_lost
from towline.cli.options import Parser, sbatch_options, split_command
from towline.cli.session import open_for, open_session
from towline.cli.terminal import note, say, say_json
from towline.client.submission import new_key, own_environment, this_folder, umask
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.client.session import Session

#: Options whose value goes to the Engine as it was typed.
PASSED_ON = {
    "cluster": (("-c", "--cluster"), "NAME", "where to run it (default: the configured cluster)"),
    "request": (("-r", "--request"), "TEXT", "what it needs, e.g. '2:[gtx1070]'"),
    "cpus": (("--cpus",), "N", "CPUs for each process"),
    "mem": (("--mem",), "SIZE", "memory for each process, e.g. 10G"),
    "gpus": (("--gpus",), "N[:MODEL]", "GPUs for each process, e.g. 2 or 2:gtx1070"),
    "title": (("-t", "--title"), "TEXT", "a name for the job (default: the command)"),
    "time": (("--time",), "TIME", "stop it after this long, e.g. 2h"),
    "retries": (("--retries",), "N", "start it again up to N times when it fails"),
    "priority": (("--priority",), "N", "before jobs of lower priority (default: 0)"),
    "continued": (("--continue",), "JOB", "start with what this job left in its $KEEP_DIR"),
    "setup": (("--setup",), "TEXT", "shell text to run first, e.g. 'source env/bin/activate'"),
    "logdir": (("--logdir",), "PATH", "what `--service tensorboard` shows (default: its folder)"),
}
#: Those for clusters with a queue of their own.
FOR_QUEUES = {
    "signal": (("--signal",), "SIG@SECONDS", "Slurm: send it a signal so long before its limit"),
    "on_timeout": (("--on-timeout",), "WHAT", "Slurm: `resubmit` it at its limit, or `stop`"),
}
#: Options that may be given several times.
REPEATED = {
    "include": ("PATTERN", "send this too, although git ignores it; may be repeated"),
    "exclude": ("PATTERN", "do not send this; may be repeated"),
    "back": ("PATH", "bring only this home, not all it made; may be repeated"),
    "service": ("COMMAND", "run this beside it: tensorboard, or what serves on $PORT; repeatable"),
}
#: What must have ended before it begins, and how.
CHAINS = {
    "after": "begin once these jobs or batches ended well, e.g. 12,13",
    "after_any": "begin once these ended, in whatever way",
    "after_failed": "begin once these ended, but not well",
}
VALUED = (
    "-e",
    "--env",
    "-o",
    "--option",
    *(f"--{name.replace('_', '-')}" for name in [*REPEATED, *CHAINS]),
    *(flag for flags, _, _ in [*PASSED_ON.values(), *FOR_QUEUES.values()] for flag in flags),
)
EXAMPLES = """
tow run python train.py --lr 0.1
tow run 'python train.py | tee log.txt'
tow run -c lab -r '[2:gtx1070]' -- python train.py
tow run -c lab --gpus 1 --mem 10G -t baseline -d python train.py
tow run -d --after 12,13 python evaluate.py
tow run --dry-run -c lab --gpus 2 python train.py
tow run -c lab --service tensorboard --logdir runs python train.py
"""


def parser() -> Parser:
    parser = Parser(
        "run",
        "[options] COMMAND...",
        "Run a command as a job and follow it. Everything after the command's first word belongs\n"
        "to the command; one word in quotes is a line for a shell. `tow` exits with the command's\n"
        "own exit code.",
        EXAMPLES,
    )
    for name, (flags, metavar, text) in PASSED_ON.items():
        parser.add_argument(*flags, dest=name, metavar=metavar, help=text)
    parser.add_argument("--exclusive", action="store_true", help="no other job on its machines")
    parser.add_argument(
        "--sandbox", action="store_true", help="wall it in: it sees and changes only its own folder"
    )
    parser.add_argument(
        "-e",
        "--env",
        action="append",
        default=[],
        metavar="K=V",
        help="set a variable; only a name takes its value from here",
    )
    for name, (metavar, text) in REPEATED.items():
        parser.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=text)
    for name, text in CHAINS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, action="append", default=[], metavar="JOBS", help=text)
    _add_queue_options(parser)
    parser.add_argument(
        "--in-place", action="store_true", help="run in this very folder (this machine only)"
    )
    parser.add_argument("--no-results", action="store_true", help="bring nothing home when it ends")
    parser.add_argument(
        "-d", "--detach", action="store_true", help="print the job's number and return"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be sent, and where it would run"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def _add_queue_options(parser: Parser) -> None:
    parser.add_sbatch_option(
        "an option of sbatch or qsub, e.g. partition=gpu or q=cpu; may be repeated"
    )
    for name, (flags, metavar, text) in FOR_QUEUES.items():
        parser.add_argument(*flags, dest=name, metavar=metavar, help=text)
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="a queue starts it again by itself after a failed node or a pre-emption",
    )


def main(args: list[str]) -> int:
    ours, command = split_command(args, VALUED)
    check_terminal(ours, [])
    asking = parser()
    options = asking.read(ours, command)
    if not command:
        asking.error("which command? put it at the end: tow run COMMAND")
    check_terminal([], command)
    say_directives(command)
    session = open_for(options)
    ask = job_ask(options, command)
    if options.dry_run:
        return _plan(session, ask, options.json)
    told = say_input_is_lost("the job")
    if options.detach:
        job = session.submit_ask(ask, new_key())
        say_json(job) if options.json else say(f"job {job['id']}")
        return 0
    from towline.cli.follow import TerminalFollow

    follow = TerminalFollow(session, ask=ask, key=new_key(), json=options.json)
    code = follow.run()
    if follow.job_id and follow.following.view.get("ended"):
        session.take_home(follow.job_id)
    if not told:
        # What is piped in may have come later.
        say_input_is_lost("the job")
    return code


def _question_services(services: list[str]) -> None:
    """In double quotes the shell here puts its own $PORT, most often nothing, into the text."""
    for text in services:
        if " " in text.strip() and "PORT" not in text:
            note(f"the service {text!r} does not name $PORT: does it serve on that port?")
            note("  in single quotes it stays as it is: --service 'jupyter lab --port $PORT'")


def job_ask(options: Namespace, command: list[str]) -> dict[str, Any]:
    """What the Engine is asked to run; values as they were typed."""
    folder = this_folder()
    ask: dict[str, Any] = {
        "argv": argv_of(command),
        "cwd": folder,
        **own_environment(options.cluster, folder),
        "umask": umask(),
        "env": dict(_variable(text) for text in options.env),
    }
    ask.update({name: value for name in PASSED_ON if (value := getattr(options, name)) is not None})
    if ask["argv"] != command:
        ask.setdefault("title", command[0])
    if "continued" in ask:
        from towline.client.names import job_number

        ask["continued"] = job_number(open_session(), ask["continued"])
    ask.update({name: value for name in REPEATED if (value := getattr(options, name))})
    if "service" in ask:
        ask["services"] = ask.pop("service")
        _question_services(ask["services"])
    for name in CHAINS:
        if named := ",".join(getattr(options, name)):
            ask[name] = named.split(",")
    ask.update(_queue_ask(options))
    if options.exclusive:
        ask["exclusive"] = True
    if options.sandbox:
        ask["sandbox"] = True
    if options.in_place:
        ask["in_place"] = True
    if options.no_results:
        ask["results"] = False
    return ask


def argv_of(command: list[str]) -> list[str]:
    """What is run: one quoted word that names no file is a line for a shell, as ssh takes it."""
    if len(command) != 1:
        return command
    from towline.model.lines import SHELL, is_shell_line

    return [*SHELL, *command] if is_shell_line(command) and not exists(command[0]) else command


def _queue_ask(options: Namespace) -> dict[str, Any]:
    """What is for clusters with a queue of their own."""
    found = {name: value for name in FOR_QUEUES if (value := getattr(options, name)) is not None}
    if options.option:
        found["options"] = sbatch_options(options)
    if options.requeue:
        found["requeue"] = True
    return found


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-e {text!r} does not name a variable", "write it like -e SEED=7")
    if equals:
        return name, value
    if name not in os.environ:
        raise UsageError(f"-e {name}: there is no variable {name} here", f"write -e {name}=VALUE")
    return name, os.environ[name]


def _plan(session: Session, ask: dict[str, Any], json: bool) -> int:
    plan = session.call("POST", "/v1/plan", ask, repeat=True)
    if json:
        say_json(plan)
    else:
        from towline.cli.terminal.plan import plan_text

        say(plan_text(plan))
    return 0
