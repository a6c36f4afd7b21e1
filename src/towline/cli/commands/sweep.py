"""`tow sweep`: one command with every combination of values, and what came of each."""

from __future__ import annotations

from towline.cli.commands import batch
from towline.cli.options import Parser, split_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

#: What is done with a sweep, and what that is called of a batch.
ACTIONS = {
    "status": "show",
    "table": "table",
    "log": "log",
    "results": "results",
    "retry": "retry",
    "stop": "stop",
}
#: What a batch takes its commands from, and a sweep does not.
NOT_HERE = ("help", "file", "matrix", "params")
ABOUT = """\
Run COMMAND with every combination of the values, {names} in it replaced by them: a batch, with all
that `tow batch` can be told. With --pack N, N runs share an allocation at a time (all runs share
one, unless --per-allocation says otherwise), and on machines each asks for its N-th of what is
asked for. --rerun-failed runs only what is missing, under the same numbers.

  tow sweep status NAME         how far it is, what failed; -f follows it
  tow sweep table NAME          every run: its values, state, time, machine and exit code
  tow sweep log NAME [LINES]    the output of its runs, in their order
  tow sweep results NAME        wait until what they made is home
  tow sweep retry NAME          run again what failed, was lost, stopped or skipped; the same, and
                                followed to its end: tow sweep --rerun-failed NAME
  tow sweep stop NAME           stop it"""
EXAMPLES = """
tow sweep lr=0.1,0.01 'seed=range(10)' -- python train.py --lr {lr} --seed {seed}
tow sweep -c cedar --gpus 4 --pack 4 --per-allocation 8 seed=1..64 -- python train.py {seed}
tow sweep --rerun-failed lr=0.1,0.01 -- python train.py --lr {lr}
tow sweep table sweep
"""


def parser() -> Parser:
    parser = Parser("sweep", "[options] NAME=VALUES... -- COMMAND...", ABOUT, EXAMPLES)
    parser.add_argument(
        "axes",
        nargs="*",
        metavar="NAME=VALUES",
        help="values of {NAME}, e.g. lr=0.1,0.01 seed=1..4 'fold=range(5)'",
    )
    whole = batch.parser()
    parser.set_defaults(**whole._defaults)
    for action in whole._actions:
        if action.dest not in NOT_HERE:
            parser._add_action(action)
    return parser


def main(args: list[str]) -> int:
    options, words = split_command(args, batch.VALUED)
    if words and words[0] in ACTIONS:
        return _act(words[0], [*options, *words[1:]])
    asking = parser()
    command: list[str] = []
    if "--" in args:
        place = args.index("--")
        args, command = args[:place], args[place + 1 :]
    typed = asking.read(args)
    if typed.rerun_failed and len(typed.axes) == 1 and "=" not in typed.axes[0] and not command:
        return _act("retry", ["-f", typed.axes[0]])
    if not typed.axes:
        asking.error("what varies? tow sweep lr=0.1,0.01 -- COMMAND {lr}")
    if not command:
        asking.error("which command? put it behind `--`: tow sweep lr=0.1,0.01 -- COMMAND {lr}")
    return _run(typed, command)


def _act(word: str, args: list[str]) -> int:
    if word == "table":
        from towline.cli.batch.sweep_table import main as show

        return show(args)
    if _is_of_a_launcher(word, args):
        from towline.cli.batch.sweep_actions import act

        return act(word, args, ACTIONS[word])
    return batch.main([ACTIONS[word], *args])


def _is_of_a_launcher(word: str, args: list[str]) -> bool:
    from towline.cli.batch.actions import parser_of
    from towline.cli.batch.sweep_table import is_of_a_launcher
    from towline.cli.session import open_session

    return is_of_a_launcher(open_session(), parser_of(ACTIONS[word]).read(args).name)


def _run(options: Namespace, command: list[str]) -> int:
    from towline.model.parameters import matrix_commands, with_ranges

    batch.say_what_is_no_range(options.axes)
    commands = matrix_commands([with_ranges(axis) for axis in options.axes], command)
    if options.name is not None:
        batch.check_name(options.name)
    if options.pack is not None and options.per_allocation is None:
        options.per_allocation = 0
    if options.dry_run:
        return batch.dry_run(options, commands)
    return batch.run_all(options, commands, options.name or "sweep", "the values")
