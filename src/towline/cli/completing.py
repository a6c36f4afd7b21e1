"""What could stand where somebody is typing: commands, options, jobs, clusters, a job's files.

Nothing is started for it, and a machine is asked once for a folder: what it said holds for a
moment, in which people type on.
"""

from __future__ import annotations

import json
import os
import time

from towline.client.session import Session
from towline.client.transport import with_query
from towline.errors import TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action
    from typing import Any

    from towline.cli.options import Parser

#: Words to choose from, paths of a job, or whatever is in a folder here.
WORDS, PATHS, HERE = "words", "paths", "here"
#: So long what a machine said of a folder holds, and of so many folders it is kept.
FRESH_S = 10.0
MOST_KEPT = 20
#: What a value is called where a cluster is meant.
_CLUSTERS = ("--cluster", "-c")


class FoundNames:
    """Words with what they are; `how` says which kind they are of."""

    def __init__(self, how: str, words: dict[str, str] | None = None) -> None:
        self.how = how
        self.words = words or {}


def candidates(typed: list[str]) -> FoundNames:
    """What the last of the words behind `tow` may become; it may be empty."""
    *before, current = _joined(typed) or [""]
    if not before or before[0] == "help":
        return _beginning(current, _commands())
    try:
        parser, words = _parser(before)
    except (ImportError, AttributeError, KeyError):
        return FoundNames(WORDS)
    if parser is None:
        return _beginning(current, dict.fromkeys(words, ""))
    flag, equals, value = current.partition("=")
    if equals and flag.startswith("--"):
        return _with_flag(flag, _values(_option(parser, flag), flag, value))
    option, place = _standing(parser, words)
    if option is not None:
        return _values(option, words[-1], current)
    if current.startswith("-") and place >= 0:
        return _beginning(current, _options(parser))
    return _positional(parser, words, place, current)


def _commands() -> dict[str, str]:
    from towline.cli.main import COMMANDS

    return {name: text for commands in COMMANDS.values() for name, text in commands.items()}


def _parser(before: list[str]) -> tuple[Parser | None, list[str]]:
    """The parser of the command that is typed, and the words behind it."""
    from towline.cli.main import load

    name, *words = before
    if name == "sweep":
        name, words = _as_batch(words)
    if name != "batch":
        parser: Parser = load(name).parser()
        return parser, words
    from towline.cli.batch.actions import parser_of
    from towline.cli.commands.batch import ACTIONS
    from towline.cli.commands.batch import parser as whole

    if words and words[0] in ACTIONS:
        return parser_of(words[0]), words[1:]
    return whole(), words


def _as_batch(words: list[str]) -> tuple[str, list[str]]:
    """What is done with a sweep is done with a batch, but for its table."""
    from towline.cli.commands.sweep import ACTIONS

    if words and words[0] in ACTIONS and words[0] != "table":
        return "batch", [ACTIONS[words[0]], *words[1:]]
    return "sweep", words


def _joined(typed: list[str]) -> list[str]:
    """bash takes `--cluster=lab` for three words."""
    words: list[str] = []
    for word in typed:
        if word == "=" and words and words[-1].startswith("--"):
            words[-1] += "="
        elif words and words[-1].startswith("--") and words[-1].endswith("="):
            words[-1] += word
        else:
            words.append(word)
    return words


def _standing(parser: Parser, words: list[str]) -> tuple[Action | None, int]:
    """The option that wants a value now, or which of the words that are no options comes next.

    -1: what is typed belongs to the command of a job.
    """
    waiting: Action | None = None
    place = 0
    # The command of `run` begins with the first word, those of the others behind `--`.
    free = parser.prog == "tow run"
    for word in words:
        if waiting is not None:
            waiting = None
        elif word == "--":
            return None, -1
        elif word.startswith("-") and len(word) > 1:
            option = _option(parser, word.partition("=")[0])
            waiting = option if option and option.nargs != 0 and "=" not in word else None
        elif free:
            return None, -1
        else:
            place += 1
    return waiting, place


def _option(parser: Parser, flag: str) -> Action | None:
    return parser._option_string_actions.get(flag)


def _options(parser: Parser) -> dict[str, str]:
    return {
        flag: action.help or ""
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--") or len(action.option_strings) == 1
    }


def _values(option: Action | None, flag: str, current: str) -> FoundNames:
    if option is None:
        return FoundNames(WORDS)
    if option.choices:
        return _beginning(current, dict.fromkeys(map(str, option.choices), ""))
    if flag in _CLUSTERS:
        return _beginning(current, _clusters())
    if option.metavar == "JOB":
        return _beginning(current, _jobs())
    return FoundNames(HERE) if option.metavar in ("FILE", "PATH", "FOLDER") else FoundNames(WORDS)


def _with_flag(flag: str, found: FoundNames) -> FoundNames:
    return FoundNames(found.how, {f"{flag}={word}": text for word, text in found.words.items()})


def _positional(parser: Parser, words: list[str], place: int, current: str) -> FoundNames:
    wanted = [action for action in parser._actions if not action.option_strings]
    if place < 0 or not wanted:
        return FoundNames(HERE)
    if place >= len(wanted) and wanted[-1].nargs not in ("*", "+"):
        return FoundNames(WORDS)
    action = wanted[min(place, len(wanted) - 1)]
    if action.choices:
        return _beginning(current, dict.fromkeys(map(str, action.choices), ""))
    if parser.prog == "tow batch":
        from towline.cli.commands.batch import ACTIONS

        found = _beginning(current, dict.fromkeys(ACTIONS, ""))
        return found if found.words and current else FoundNames(HERE)
    if action.metavar in ("JOB", "JOBS"):
        return _beginning(current, _jobs())
    if action.metavar == "PATH":
        job = next(word for word in words if not word.startswith("-"))
        return FoundNames(PATHS, _files(job, current))
    if action.metavar == "NAME" and parser.prog.startswith("tow batch "):
        return _beginning(current, _batches())
    if action.metavar == "NAME" and parser.prog == "tow clusters":
        return _beginning(current, _clusters())
    return FoundNames(HERE)


def _beginning(current: str, words: dict[str, str]) -> FoundNames:
    return FoundNames(
        WORDS, {word: text for word, text in words.items() if word.startswith(current)}
    )


# --- what only the Engine knows ------------------------------------------------------------------


def _ask(target: str) -> Any:
    """The Engine's answer; None where none runs: looking starts nothing."""
    session = Session()
    try:
        return session.call("GET", target) if os.path.exists(session.paths.socket) else None
    except TowlineError:
        return None


def _jobs() -> dict[str, str]:
    answer = _ask("/v1/jobs") or {"jobs": []}
    found: dict[str, str] = {}
    for job in reversed(answer["jobs"]):
        title = str(job.get("title") or "")
        found[str(job["id"])] = f"{job['state']}: {title or ' '.join(job['command'])}"[:60]
        if title.isprintable() and title and " " not in title:
            found[title] = f"job {job['id']}, {job['state']}"
    return {**found, **_batches(), "last": "the newest job"} if found else {}


def _batches() -> dict[str, str]:
    answer = _ask("/v1/batches") or {"batches": []}
    return {batch["name"]: f"a batch of {batch['count']}" for batch in answer["batches"]}


def _clusters() -> dict[str, str]:
    answer = _ask(with_query("/v1/clusters", cwd=os.getcwd()))
    if answer is not None:
        return {cluster["name"]: cluster.get("kind", "") for cluster in answer["clusters"]}
    from towline.config.load import load_config
    from towline.config.paths import home_paths

    try:
        return dict.fromkeys(["local", *load_config(home_paths().config_file).clusters], "")
    except TowlineError:
        return {}


def _files(job: str, current: str) -> dict[str, str]:
    """The paths in the folder of a job that begin so; one round trip, or none within a moment."""
    folder, slash, name = current.rpartition("/")
    found: dict[str, str] = {}
    for entry in _listed(job, folder):
        told, kind = str(entry["name"]), str(entry.get("kind"))
        # A name comes from elsewhere: what a terminal would not show is not offered.
        if told.startswith(name) and (name or not told.startswith(".")) and told.isprintable():
            mark = "/" if kind == "dir" else ""
            found[f"{folder}{slash}{told}{mark}"] = ""
    return found


def _listed(job: str, folder: str) -> list[dict[str, Any]]:
    from towline.client.names import job_number

    session = Session()
    if not os.path.exists(session.paths.socket):
        return []
    kept = Kept(os.path.join(session.paths.home, "completions.json"))
    try:
        number = job_number(session, job)
        known = kept.get(f"{number}:{folder}")
        if known is not None:
            return known
        target = with_query(f"/v1/jobs/{number}/files", path=folder)
        entries: list[dict[str, Any]] = session.call("GET", target)["entries"]
    except TowlineError:
        return []
    kept.put(f"{number}:{folder}", entries)
    return entries


class Kept:
    """What machines said of folders a moment ago; losing it costs a round trip and no more."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self, key: str) -> list[dict[str, Any]] | None:
        at, entries = self._read().get(key, (0.0, []))
        return entries if 0 <= time.time() - at < FRESH_S else None

    def put(self, key: str, entries: list[dict[str, Any]]) -> None:
        known = {**self._read(), key: (time.time(), entries)}
        newest = sorted(known.items(), key=lambda one: -float(one[1][0]))[:MOST_KEPT]
        beside = f"{self.path}.{os.getpid()}"
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(dict(newest), file)
            os.replace(beside, self.path)
        except OSError:
            pass  # no room: it is asked again

    def _read(self) -> dict[str, Any]:
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}
