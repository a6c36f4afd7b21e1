"""Services: what runs beside a job for people to look at it, and how it is started. Pure."""

import re
import shlex
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from towline.errors import UsageError
from towline.model.odd_text import keepable, original

TENSORBOARD = "tensorboard"
MOST_SERVICES = 10
_LONGEST_NAME = 40
_PYTHON = re.compile(r"python[0-9.]*$")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
#: Looks where the job's environment has it; says what to install where nothing has, and what is
#: wrong where it is there but broken.
_FIND_TENSORBOARD = """\
has='
import importlib.util, sys
try:
    there = all(map(importlib.util.find_spec, ("tensorboard", "tensorboard.main")))
except Exception as error:
    sys.exit("%s: %s" % (type(error).__name__, error))
sys.exit(0 if there else 69)'
why=
for python in python3 python; do
  said=`"$python" -c "$has" 2>&1` && exec "$python" -m tensorboard.main "$@"
  case $? in 69 | 126 | 127) ;; *) why="$why $said" ;; esac
done
if command -v tensorboard > /dev/null 2>&1; then exec tensorboard "$@"; fi
if [ -n "$why" ]; then
  echo "TensorBoard is there but does not start:$why" >&2
else
  echo "TensorBoard is not installed there: pip install tensorboard, in the job's environment" >&2
fi
exit 69
"""


class Service(Struct, frozen=True, omit_defaults=True):
    """One service of a job."""

    name: str
    #: Shell text that serves on $PORT; empty: TensorBoard.
    command: str = ""
    #: What TensorBoard shows, seen from the job's working folder.
    logdir: str = "."


def services_from(texts: list[str], logdir: str | None) -> tuple[Service, ...]:
    """What was typed behind `--service`, with a name for each."""
    found: dict[str, Service] = {}
    for text in texts:
        _check_spelling(text.strip())
        name = free_name(name_of(text), found)
        if text.strip() == TENSORBOARD:
            found[name] = Service(name, logdir=keepable(logdir or "."))
        else:
            found[name] = Service(name, command=keepable(text))
    if logdir and all(service.command for service in found.values()):
        raise UsageError("--logdir is for TensorBoard", hint="add --service tensorboard")
    if "\0" in "".join([*texts, logdir or ""]):
        raise UsageError("a service contains a NUL character, which no program can be given")
    if len(found) > MOST_SERVICES:
        raise UsageError(f"a job can have up to {MOST_SERVICES} services, not {len(found)}")
    return tuple(found.values())


def _check_spelling(word: str) -> None:
    """The one service that is known by name is often typed."""
    from difflib import get_close_matches

    near = word.lower() != word and word.lower() == TENSORBOARD
    if near or (word != TENSORBOARD and get_close_matches(word, [TENSORBOARD], cutoff=0.8)):
        raise UsageError(
            f"there is no service {word!r}; did you mean {TENSORBOARD}?",
            hint="anything else is a command that serves on $PORT: --service './serve $PORT'",
        )


def name_of(command: str) -> str:
    """The program's name; for what Python runs, the module's or the script's."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    while words and (_SETTING.match(words[0]) or words[0] in ("exec", "env")):
        words.pop(0)
    if not words:
        raise UsageError("a service needs a command", hint="e.g. --service tensorboard")
    name, rest = words[0], words[1:]
    if _PYTHON.search(name) and "-m" in rest[:-1]:
        name = rest[rest.index("-m") + 1]
    elif _PYTHON.search(name) and (scripts := [word for word in rest if word.endswith(".py")]):
        name = scripts[0].removesuffix(".py")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name.rpartition("/")[2])
    return plain.strip(".-")[:_LONGEST_NAME] or "service"


def free_name(name: str, taken: dict[str, Service]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def argv_of(service: Service) -> list[str]:
    """The command line that serves on $PORT, for a POSIX shell."""
    if service.command:
        return ["/bin/sh", "-c", service.command]
    script = f'set -- "$@" --port "$PORT" --host 127.0.0.1\n{_FIND_TENSORBOARD}'
    return ["/bin/sh", "-c", script, "sh", "--logdir", service.logdir]


def orders_of(services: Iterable[Service]) -> list[dict[str, Any]]:
    """As the agent is told."""
    return [
        {"name": service.name, "argv": [original(word) for word in argv_of(service)]}
        for service in services
    ]


def path_in(output: str, port: int) -> str:
    """Where on its port a service says it is to be opened, e.g. `/lab?token=...`; often nowhere."""
    found = re.findall(rf"https?://[\w.\[\]:-]+:{port}(/[\w/.~%?=&+-]*)", output)
    # A token that somebody chose is not printed: there are three dots in its place.
    paths = [path.removesuffix("?token=...") for path in found if path != "/"]
    return next((path for path in reversed(paths) if "token=" in path), paths[-1] if paths else "")
