"""`tow qrls` and `tow qhold`: let jobs go that are held, and hold jobs that have not begun."""

from __future__ import annotations

from towline.cli.compat.gridengine.listing import Entries, Entry
from towline.cli.compat.gridengine.outputs import see_to_it
from towline.cli.session import open_session

VALUED = {"-h": ("u", "taken: a hold is always the user's own")}


def release(words: list[str]) -> int:
    return _change(words, "release")


def hold(words: list[str]) -> int:
    return _change(words, "hold")


def _change(words: list[str], what: str) -> int:
    names = _names(words)
    if not names:
        program = "qrls" if what == "release" else "qhold"
        print(f"ERROR! no option argument\nusage: {program} [-h u] job_list")
        return 1
    see_to_it()
    entries = Entries(open_session())
    code = 0
    for name in names:
        found = entries.called(name)
        if not found:
            # Of a name, too, and with an exit code of its own.
            print(f'denied: job "{name}" does not exist')
            code = 3
            continue
        late = _ask(entries, what, found)
        for number in dict.fromkeys(entry.number for entry in found):
            if number in late:
                why = "has begun, is in its cluster's own queue, or is an array"
                print(f'denied: job "{number}" {why}: it cannot be held')
                code = code or 1
            else:
                print(f"modified hold of job {number}")
    return code


def _names(words: list[str]) -> list[str]:
    rest, names = list(words), list[str]()
    while rest:
        word = rest.pop(0)
        if word == "-h":
            del rest[:1]
        else:
            names += filter(None, word.split(","))
    return names


def _ask(entries: Entries, what: str, found: list[Entry]) -> set[int]:
    """Have it done; the numbers of those that cannot be held."""
    ids = [entry.job for entry in found]
    said = entries.session.call("POST", f"/v1/jobs/{what}", {"ids": ids}, repeat=True)
    late = set(said.get("late", ()))
    return {entry.number for entry in found if entry.job in late}
