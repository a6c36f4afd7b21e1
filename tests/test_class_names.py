"""One name for one thing: a class has its name for itself in the whole package."""

import ast
from collections import defaultdict

from test_architecture import PACKAGE, named, python_files, tree

#: Names that two classes have, and why that is right. No other name may join them.
TWICE = {
    "Attempt": "of a job; as a queue's own machine sees it, and as its node does (Python 3.6)",
    "Call": "of the HTTP API, and of a function of a program",
    "Channel": "to a machine, and between a program and its worker (shipped there alone)",
    "Entry": "of a job in a queue, and the same as `qstat` prints it",
    "Host": "that is dialled, and a line of `qhost`",
    "Job": "of the Engine, and of the Python API, where it is the word that people import",
    "Place": "of an attempt in a queue, and of a guest on a node (Python 3.6)",
    "Refusal": "of the agent (Python 3.6), and of a queue's command",
    "Refused": "by ssh, by `qsub`, and by a queue: facts are always written `facts.Refused`",
    "StopAsked": "of a job, and of an attempt in a queue: `facts.StopAsked`",
    "Submission": "of a job by a person, and of an entry to a queue",
    "Submitted": "of a job, and of an attempt to a queue: `facts.Submitted`",
    "Tasks": "of asyncio that go on beside, and of a `qsub -t`",
    "Unreachable": "a machine's error, and a queue's fact: `facts.Unreachable`",
    "Worker": "as the program sees it, and the process itself (shipped there alone)",
}


def test_every_class_has_a_name_of_its_own() -> None:
    found = defaultdict(set)
    for path in python_files(PACKAGE):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(named(path))
    twice = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    more = [f"{name}: {', '.join(places)}" for name, places in twice.items() if name not in TWICE]
    assert not more, "\n".join(["several classes of one name:", *sorted(more)])
    assert twice.keys() >= TWICE.keys(), f"unique by now: {sorted(TWICE.keys() - twice.keys())}"
