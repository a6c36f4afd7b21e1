"""`tow batch`: many commands as one thing."""

from __future__ import annotations

import os

from towline.cli.commands import run
from towline.cli.commands.run import job_ask
from towline.cli.not_yet import check_is_list
from towline.cli.options import Parser, split_command
from towline.cli.session import open_for, open_session
from towline.cli.terminal import interactive, note, printable, say, say_json, tell
from towline.cli.terminal.wording import count
from towline.client.submission import new_key
from towline.errors import UsageError
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.client.session import Session
    from towline.model.lines import TypedCommand

#: Options of `tow run` that are about one job only, and those that mean something else here.
NOT_FOR_MANY = ("title", "continued", "service", "logdir")
ITS_OWN = ("help", "detach", "dry_run", "json")
ACTIONS = ("list", "show", "log", "stop", "retry", "results")
VALUED = (
    *run.VALUED,
    *(
        "--matrix",
        "--params",
        "--name",
        "--max-parallel",
        "--pack",
        "--per-allocation",
        "--stagger",
    ),
)
SHOWN_BY_DRY_RUN = 5
ABOUT = """\
Run many commands as one batch: those of a file (one per line; `#` begins a comment, `\\` at the
end of a line goes on with the next, the rest is up to bash; `-` is stdin), or one command with
{names} in it and the values they take. What `tow run` can be told of a job holds for each of them.
It exits with 0 when all are done, 1 when any failed.

  tow batch list                all batches; `tow batch` alone does the same
  tow batch show NAME           how far it is, what failed; -f follows it
  tow batch log NAME [LINES]    the output of its jobs, in the order of the lines
  tow batch stop NAME           stop it
  tow batch retry NAME          run again what failed, was lost, stopped or skipped
  tow batch results NAME        wait until what it made is home"""
EXAMPLES = """
tow batch commands.txt
tow batch -c lab --gpus 1 --max-parallel 8 commands.txt
tow batch --matrix lr=0.1,0.01 model=a,b -- python train.py --lr {lr} --model {model}
tow batch --params runs.csv -- python train.py --lr {lr}
tow batch --resume commands.txt
ls *.png | sed 's/.*/convert & &.jpg/' | tow batch --name pictures -
"""


def parser() -> Parser:
    parser = Parser(
        "batch", "[options] FILE | [options] --matrix NAME=VALUES... -- COMMAND...", ABOUT, EXAMPLES
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="commands, one per line; - is stdin"
    )
    parser.add_argument(
        "--matrix",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUES",
        help="run COMMAND with every combination of these values, e.g. lr=0.1,0.01 seed=1..4",
    )
    parser.add_argument(
        "--params", metavar="FILE", help="run COMMAND with each row of a CSV or JSON lines file"
    )
    parser.add_argument("--name", metavar="NAME", help="its name (default: the file's)")
    parser.add_argument(
        "--max-parallel", type=int, metavar="N", help="at most N of its jobs at a time"
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop it at the first failure")
    _add_packing(parser)
    parser.add_argument(
        "--keep-order",
        action="store_true",
        help="print what the jobs write, in the order of the lines, instead of events",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with it: done lines do not run again"
    )
    parser.add_argument(
        "--rerun-failed", action="store_true", help="the same, and run failed lines again"
    )
    _add_options_of_run(parser)
    parser.add_argument("-d", "--detach", action="store_true", help="print its name and return")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the commands and where the first would run"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def _add_packing(parser: Parser) -> None:
    parser.add_argument(
        "--pack",
        type=int,
        metavar="N",
        help="N jobs on each GPU; with --per-allocation, N of its jobs at a time",
    )
    parser.add_argument(
        "--per-allocation",
        type=int,
        metavar="M",
        help="M jobs share an allocation of the cluster's queue (0: all), and what is asked for "
        "is what they share: each is pinned to its part of the CPUs and GPUs",
    )
    parser.add_argument(
        "--stagger", metavar="TIME", help="the first jobs of an allocation begin so far apart"
    )


def _add_options_of_run(parser: Parser) -> None:
    """What `tow run` can be told of a job, all jobs of a batch can be told."""
    for action in run.parser()._actions:
        if action.dest in NOT_FOR_MANY:
            parser.set_defaults(**{action.dest: action.default})
        elif action.dest not in ITS_OWN:
            parser._add_action(action)


def main(args: list[str]) -> int:
    reading, words, command = reader(args)
    if reading.prog != "tow batch":
        from towline.cli.batch.actions import act

        return act(reading, words)
    if not command and _hides_command(words):
        reading.error("put `--` in front of the command: tow batch --matrix lr=1,2 -- COMMAND {lr}")
    options = reading.read(words)
    if not (options.file or options.matrix or options.params or command):
        from towline.cli.batch.actions import show_list

        return show_list(open_session(), options.json)
    _check(reading, options, command)
    commands, name, source = _commands(options, command)
    if options.dry_run:
        return dry_run(options, commands)
    return run_all(options, commands, name, source)


def _hides_command(words: list[str]) -> bool:
    """Whether a command stands between the values of --matrix or behind --params FILE."""
    options, unknown = parser().parse_known_args(words)
    varied = bool(options.matrix or options.params)
    return varied and (bool(unknown) or any("=" not in axis for axis in options.matrix))


def reader(args: list[str]) -> tuple[Parser, list[str], list[str]]:
    """The parser for what was typed, what it is to read, and the command behind `--`."""
    before, behind = args, []
    if "--" in args:
        place = args.index("--")
        before, behind = args[:place], args[place + 1 :]
    options, words = split_command(before, VALUED)
    if words and words[0] in ACTIONS and not behind:
        from towline.cli.batch.actions import parser_of

        return parser_of(words[0]), [*options, *words[1:]], []
    if len(behind) == 1 and not any(w.startswith(("--matrix", "--params")) for w in before):
        # `tow batch -- show` means the file.
        return parser(), [*before, "--", *behind], []
    return parser(), before, behind


def _check(asking: Parser, options: Namespace, command: list[str]) -> None:
    given = [bool(options.file), bool(options.matrix), options.params is not None]
    if sum(given) > 1:
        asking.error("give a FILE, or --matrix, or --params: one of them")
    if options.file and command:
        asking.error("the commands are in the FILE; a COMMAND is for --matrix and --params")
    if not options.file and not any(given):
        asking.error("what varies? --matrix NAME=VALUES... or --params FILE in front of the `--`")
    if not options.file and not command:
        asking.error("which command? put it behind `--`: tow batch --matrix lr=1,2 -- COMMAND {lr}")
    if options.keep_order and (options.json or options.detach):
        asking.error("--keep-order prints what the jobs write: not with --json or -d")
    if options.max_parallel is not None and options.max_parallel < 1:
        asking.error(f"--max-parallel must be at least 1, not {options.max_parallel}")
    if options.name is not None:
        check_name(options.name)


def check_name(name: str) -> None:
    from towline.model.lines import as_name

    if name != as_name(name) or not name:
        raise UsageError(
            f"a batch cannot be called {name!r}",
            "letters, digits and .+=@,~-_ only, the first a letter or digit, at most 60",
        )
    if name in ("last", "all") or name.replace("-", "", 1).isdecimal():
        raise UsageError(
            f"a batch cannot be called {name!r}, which means other jobs",
            "any name but a number, a range, `last` and `all`",
        )


def _commands(options: Namespace, command: list[str]) -> tuple[list[TypedCommand], str, str]:
    """The commands, what the batch is called, and what errors call their source."""
    from towline.model.lines import commands_from, name_from

    if options.matrix:
        from towline.model.parameters import matrix_commands

        say_what_is_no_range(options.matrix)
        return matrix_commands(options.matrix, command), options.name or "batch", "--matrix"
    path = options.file or options.params
    data = _read(path)
    source = "stdin" if path == "-" else printable(path)
    if options.file:
        check_is_list(data, source)
    name = options.name or ("" if path == "-" else name_from(path)) or "batch"
    if options.file:
        return commands_from(data, source), name, source
    from towline.model.parameters import row_commands

    return row_commands(data, source, command), name, source


def say_what_is_no_range(axes: list[str]) -> None:
    for axis in axes:
        name, _, value = axis.partition("=")
        first, dash, last = value.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            note(f"{printable(name)} has one value, {value}; a range is {first}..{last}")


def _read(path: str) -> bytes:
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            return file.read()
    except OSError as error:
        missing = not os.path.exists(path)
        hint = f"a single command: tow run COMMAND; also: tow batch {'|'.join(ACTIONS)}"
        raise UsageError(
            f"cannot read {printable(path)}: {error.strerror}", hint if missing else ""
        ) from None


def batch_ask(options: Namespace, commands: list[TypedCommand], name: str) -> dict[str, Any]:
    """What the Engine is asked to run."""
    return {
        "name": name,
        "base": _base(options),
        "lines": [
            {"argv": command.argv, "title": command.title, "number": command.number}
            for command in commands
        ],
        "max_parallel": options.max_parallel or 0,
        "fail_fast": options.fail_fast,
    }


def _base(options: Namespace) -> dict[str, Any]:
    base = job_ask(options, [])
    if options.pack is not None or options.per_allocation is not None or options.stagger:
        from towline.cli.batch.packing import pack

        pack(options, base)
    return base


def dry_run(options: Namespace, commands: list[TypedCommand]) -> int:
    session = open_for(options)
    ask = {**_base(options), "argv": commands[0].argv}
    plan = session.call("POST", "/v1/plan", ask, repeat=True)
    if options.json:
        lines = [{"number": command.number, "argv": command.argv} for command in commands]
        say_json({"lines": lines, "plan": plan})
        return 0
    from towline.cli.terminal.plan import plan_text

    say(f"{count(len(commands), 'job')}:")
    say("\n".join(f"{command.number:>6}  {_shown(command)}" for command in _few(commands)))
    if len(commands) > SHOWN_BY_DRY_RUN:
        say(f"        and {len(commands) - SHOWN_BY_DRY_RUN} more")
    say(f"\nthe first of them:\n{plan_text(plan)}")
    return 0


def _few(commands: list[TypedCommand]) -> list[TypedCommand]:
    return commands[:SHOWN_BY_DRY_RUN]


def _shown(command: TypedCommand) -> str:
    import shlex

    from towline.model.lines import BASH

    shell = command.argv[:2] == BASH
    return printable(command.title if shell else shlex.join(command.argv))


def run_all(options: Namespace, commands: list[TypedCommand], name: str, source: str) -> int:
    """Submit or resume them as one batch, and follow it."""
    session = open_for(options)
    view = None
    if options.resume or options.rerun_failed:
        view = _resumed(session, options, commands, name, source)
    since = view["seq"] if view else 0
    if view is None:
        view = _submitted(session, batch_ask(options, commands, name))
    if options.detach:
        say_json(view) if options.json else say(f"batch {view['name']}")
        return 0
    if options.keep_order:
        return _in_order(session, view)
    from towline.cli.batch.display import display_for
    from towline.cli.batch.follow import BatchFollow
    from towline.cli.batch.home import take_batch_home

    if options.json:
        say_json({"batch": view})
    else:
        where = shown_cluster(view["cluster"])
        tell(f"batch {view['name']}: {count(view['count'], 'job')} on {where}")
    code = BatchFollow(session, view["name"], display_for(options.json), since).run()
    take_batch_home(session, view["name"])
    return code


def _submitted(session: Session, ask: dict[str, Any]) -> dict[str, Any]:
    from towline.cli.patience import say_when_slow

    quiet = say_when_slow() if interactive() else lambda: None
    try:
        view: dict[str, Any] = session.once("/v1/batches", ask, new_key())["batch"]
    except KeyboardInterrupt:
        note("interrupted; if the batch was accepted by then, it goes on: tow batch list")
        raise
    finally:
        quiet()
    return view


def _resumed(
    session: Session, options: Namespace, commands: list[TypedCommand], name: str, source: str
) -> dict[str, Any] | None:
    """The batch these commands were submitted as, going on; None when there is none yet."""
    from towline.client.batches import ask_of_batch, submitted_before

    folder = job_ask(options, [])["cwd"]
    view = submitted_before(session, name, folder, commands, source)
    if view is None:
        return None
    states = ["lost", "stopped", "skipped", *(["failed"] if options.rerun_failed else [])]
    answer = ask_of_batch(session, view["name"], "retry", {"states": states})
    again: int = answer["retried"]
    done = answer["batch"]["counts"].get("done", 0)
    again_as = ", with the files as they were submitted" if again else ""
    note(f"batch {view['name']} goes on: {done} done before, {count(again, 'job')} again{again_as}")
    # Events since before the retry: what happened meanwhile is told, too.
    return {**answer["batch"], "seq": view["seq"]}


def _in_order(session: Session, view: dict[str, Any]) -> int:
    import time

    from towline.cli.batch.follow import print_in_order
    from towline.cli.batch.home import take_batch_home
    from towline.cli.terminal.batch_wording import exit_code, summary
    from towline.client.batches import jobs_of

    name, first = view["name"], view["first"]
    code = print_in_order(session, name, range(first, first + view["count"]))
    if code is not None:
        return code
    take_batch_home(session, name)
    ended = jobs_of(session, name, limit=1)["batch"]
    tell(summary(ended, time.time()))
    return exit_code(ended)
