"""`tow batch list|show|log|stop|retry|results`: batches that are there already."""

from __future__ import annotations

import time

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import note, paint, printable, say, say_json
from towline.cli.terminal.batch_wording import (
    bar,
    counts_text,
    ended_count,
    machine_names,
    pace,
    state_of,
    took,
)
from towline.cli.terminal.table import LATE, Column, show_table
from towline.cli.terminal.wording import STATE_COLOURS, ago, count, ending, machines
from towline.client.batches import ask_of_batch, batches, jobs_of
from towline.errors import UsageError
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.client.session import Session

LIST_COLUMNS = [
    Column("BATCH"),
    Column("STATE"),
    Column("PROGRESS", drop=LATE),
    Column("CLUSTER", drop=1),
    Column("TIME", drop=LATE + 1, shorter=lambda text: text.partition(" · ")[0]),
    Column("JOBS", least=20),
]
SHOW_COLUMNS = [
    Column("LINE"),
    Column("JOB"),
    Column("STATE"),
    Column("MACHINES", drop=1),
    Column("COMMAND", least=12),
    Column("REASON", least=20),
]
NOTHING = "no batches yet: tow batch FILE starts one"
AGAIN = ("failed", "lost", "stopped", "skipped")
#: What `show` lists first: what a person may have to do something about.
WORTH_SHOWING = ("failed", "lost", "running")
SHOWN = 20
TITLE_WIDTH = 40


def parser_of(action: str) -> Parser:
    """The options of one of the words behind `tow batch`."""
    return _PARSERS[action]()


def act(parser: Parser, words: list[str]) -> int:
    """Do what one of the words behind `tow batch` means."""
    options = parser.read(words)
    return _ACTIONS[parser.prog.rpartition(" ")[2]](open_session(), options)


def act_on(action: str, name: str, *words: str, json: bool = False) -> int:
    """Do with a batch what a command for jobs was asked to do."""
    return act(parser_of(action), [*words, *(["--json"] if json else []), "--", name])


def show_list(session: Session, json: bool, everything: bool = False) -> int:
    found = batches(session, everything)
    if json:
        say_json({"batches": found})
    elif not found:
        say(NOTHING)
    else:
        now = time.time()
        show_table(
            LIST_COLUMNS,
            [_row(view, now) for view in found],
        )
    return 0


def _row(view: dict[str, Any], now: float) -> list[Any]:
    state = state_of(view)
    since = ago(view["ended"], now) if view.get("ended") else ""
    return [
        view["name"],
        (state, STATE_COLOURS.get(state, "")),
        f"{bar(view, 10)} {ended_count(view)} of {view['count']}",
        shown_cluster(view["cluster"]),
        " · ".join(filter(None, (took(view, now), since))),
        " · ".join(filter(None, (counts_text(view), pace(view)))),
    ]


class _BatchParser(Parser):
    """The options of what is done with one batch, which is named first."""

    def __init__(self, action: str, usage: str, about: str, examples: str) -> None:
        super().__init__(f"batch {action}", usage, about, examples)
        self.add_argument("name", metavar="NAME", help="the batch's name, or `last`")


def _list_parser() -> Parser:
    parser = Parser(
        "batch list",
        "[--all] [--json]",
        "List batches: the active ones and those that ended lately, newest last.",
        "tow batch list\ntow batch list --all",
    )
    parser.add_argument("-a", "--all", action="store_true", help="also those that ended long ago")
    parser.add_json()
    return parser


def _list(session: Session, options: Namespace) -> int:
    return show_list(session, options.json, options.all)


def _show_parser() -> Parser:
    parser = _BatchParser(
        "show",
        "[options] NAME",
        "How far a batch is, where it runs, what failed. It exits with 0; with -f, as the batch.",
        "tow batch show sweep\ntow batch show -f last\ntow batch show --state failed -n 1000 sweep",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow it to its end")
    parser.add_argument("--state", metavar="STATE", help="list its jobs in this state, e.g. done")
    parser.add_argument("-n", metavar="N", dest="limit", type=int, default=SHOWN, help="so many")
    parser.add_json()
    return parser


def _show(session: Session, options: Namespace) -> int:
    if options.follow:
        return _follow(session, options.name, options.json)
    if options.json:
        say_json(jobs_of(session, options.name, state=options.state or "", limit=options.limit))
        return 0
    states = [options.state] if options.state else list(WORTH_SHOWING)
    jobs: list[dict[str, Any]] = []
    view: dict[str, Any] = {}
    for state in states:
        answer = jobs_of(session, options.name, state=state, limit=options.limit)
        view = answer["batch"]
        jobs += answer["jobs"]
    say("\n".join(_facts(view, time.time())))
    if jobs:
        say("")
        show_table(
            SHOW_COLUMNS,
            [_job_row(job) for job in jobs[: options.limit]],
        )
    _say_how_to_go_on(view)
    return 0


def _facts(view: dict[str, Any], now: float) -> list[str]:
    from towline.model.odd_text import original

    state = state_of(view)
    first, last = view["first"], view["first"] + view["count"] - 1
    facts = {
        "jobs": f"{counts_text(view)} ({first} to {last})",
        "folder": original(view["folder"]),
        "cluster": shown_cluster(view["cluster"]),
        "machines": machine_names(view, most=20),
        "request": view.get("request") or "",
        "at a time": str(view.get("max_parallel") or ""),
        "fail fast": "yes" if view.get("fail_fast") else "",
        "submitted": ago(view["submitted"], now),
        "took" if view.get("ended") else "runs for": took(view, now),
        "pace": pace(view),
        "waits": view.get("why") or "",
    }
    done = f"{bar(view)} {ended_count(view)} of {view['count']}"
    painted = paint(state, STATE_COLOURS.get(state, "bold"), 1)
    head = f"batch {printable(view['name'])} · {painted} · {done}"
    return [head, *(f"  {name:<10} {printable(text)}" for name, text in facts.items() if text)]


def _job_row(job: dict[str, Any]) -> list[Any]:
    title = job["title"]
    return [
        str(job.get("line") or ""),
        str(job["id"]),
        (job["state"], STATE_COLOURS.get(job["state"], "")),
        machines(job),
        title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…",
        ending(job),
    ]


def _say_how_to_go_on(view: dict[str, Any]) -> None:
    name = printable(view["name"])
    if ended_count(view) < view["count"]:
        say(f"\nto follow it: tow batch show -f {name}")
    elif any(view["counts"].get(state) for state in AGAIN):
        say(f"\nto run these again: tow batch retry {name}")


def _follow(session: Session, name: str, json: bool) -> int:
    from towline.cli.batch.display import display_for
    from towline.cli.batch.follow import BatchFollow
    from towline.cli.batch.home import take_batch_home

    view = jobs_of(session, name, limit=1)["batch"]
    code = BatchFollow(session, view["name"], display_for(json), view["seq"]).run()
    take_batch_home(session, view["name"])
    return code


def _log_parser() -> Parser:
    parser = _BatchParser(
        "log",
        "[options] NAME [LINES...]",
        "Print what the jobs of a batch wrote so far, in the order of the lines: their stdout to\n"
        "stdout, their stderr to stderr.",
        "tow batch log sweep\ntow batch log sweep 3 7-9\ntow batch log -f sweep > all.txt",
    )
    parser.add_argument(
        "lines", nargs="*", metavar="LINES", help="only these: 3, 3,7, or a range 7-9"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until each has ended")
    parser.add_argument("--state", metavar="STATE", help="only jobs in this state, e.g. failed")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--stdout", action="store_true", help="only their stdout")
    only.add_argument("--stderr", action="store_true", help="only their stderr")
    return parser


def _log(session: Session, options: Namespace) -> int:
    import os

    from towline.cli.batch.follow import print_in_order

    answer = jobs_of(session, options.name, state=options.state or "")
    jobs = sorted(answer["jobs"], key=lambda job: int(job["id"]))
    if options.lines:
        jobs = _of_lines(jobs, options.lines)
    stream = "out" if options.stdout else "err" if options.stderr else "all"
    name = answer["batch"]["name"]
    for job in jobs:
        if os.isatty(2) and len(jobs) > 1:
            note(
                f"line {job['line']} · job {job['id']} · {job['state']}: {printable(job['title'])}"
            )
        code = print_in_order(session, name, [job["id"]], stream=stream, until_end=options.follow)
        if code is not None:
            return code
    return 0


def _of_lines(jobs: list[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    wanted = [span(text) for given in lines for text in given.split(",") if text]
    found = [job for job in jobs if any(job["line"] in span for span in wanted)]
    if not found:
        raise UsageError(f"no job of it has line {', '.join(lines)}", "tow batch show lists them")
    return found


def span(text: str) -> range:
    """The lines that `3` or `7-9` means."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UsageError(f"{text!r} is not a line", "write it like 3, 3,7 or 7-9")
    return range(int(first), int(last or first) + 1)


def _stop_parser() -> Parser:
    parser = _BatchParser(
        "stop",
        "[--now] [--json] NAME",
        "Stop a batch: what waits does not start, what runs is stopped.",
        "tow batch stop sweep",
    )
    parser.add_argument(
        "--now", action="store_true", help="KILL at once, without the time to end by themselves"
    )
    parser.add_json()
    return parser


def _stop(session: Session, options: Namespace) -> int:
    answer = ask_of_batch(session, options.name, "stop", {"now": options.now})
    if options.json:
        say_json(answer)
    else:
        view = answer["batch"]
        say(f"batch {printable(view['name'])}: {counts_text(view)}")
    return 0


def _retry_parser() -> Parser:
    parser = _BatchParser(
        "retry",
        "[options] NAME",
        "Run again what failed, was lost or stopped, as it was submitted: same files, same\n"
        "command. What is done never runs again.",
        "tow batch retry sweep\ntow batch retry -f --state lost sweep",
    )
    parser.add_argument(
        "--state", action="append", choices=AGAIN, help="only what ended so; may be repeated"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow it to its end")
    parser.add_json()
    return parser


def _retry(session: Session, options: Namespace) -> int:
    body = {"states": options.state or list(AGAIN)}
    answer = ask_of_batch(session, options.name, "retry", body)
    if options.follow:
        return _follow(session, answer["batch"]["name"], options.json)
    if options.json:
        say_json(answer)
    else:
        name, again = printable(answer["batch"]["name"]), answer["retried"]
        nothing = f"nothing to run again; {counts_text(answer['batch'])}"
        say(f"batch {name}: " + (f"{count(again, 'job')} again" if again else nothing))
    return 0


def _results_parser() -> Parser:
    parser = _BatchParser(
        "results",
        "[--json] NAME",
        "Wait until what the ended jobs of a batch made is home, in job_results/NAME.LINE/ of the\n"
        "folder it was submitted from. This happens by itself; here it is waited for.",
        "tow batch results sweep",
    )
    parser.add_json()
    return parser


def _results(session: Session, options: Namespace) -> int:
    import os

    from towline.cli.batch.home import take_batch_home
    from towline.cli.cwd import short_path
    from towline.model.odd_text import original

    answer = ask_of_batch(session, options.name, "results")
    view = answer["batch"]
    elsewhere = take_batch_home(session, view["name"])
    if options.json:
        say_json(answer)
        return 0
    name = printable(view["name"])
    folder = short_path(os.path.join(original(view["folder"]), "job_results"))
    called = f"*-{name}" if elsewhere else name
    ended = f"{ended_count(view)} of {view['count']} have ended"
    say(f"{ended}; what they made is in {folder}/{called}.*")
    if answer["pending"]:
        note(f"not home yet: {count(answer['pending'], 'job')}; tow batch show {name}")
    return 0


_PARSERS = {
    "list": _list_parser,
    "show": _show_parser,
    "log": _log_parser,
    "stop": _stop_parser,
    "retry": _retry_parser,
    "results": _results_parser,
}
_ACTIONS = {
    "list": _list,
    "show": _show,
    "log": _log,
    "stop": _stop,
    "retry": _retry,
    "results": _results,
}
