"""One name for one thing: a class has its name for itself in the whole package."""

import ast
from collections import defaultdict

from test_architecture import PACKAGE, named, python_files, tree

#: Pairs that are left: the same word of the field at two ends (a job here and in the Python API, an
#: attempt here and on its node), and what the commands of a Grid Engine or a queue's own table
#: call by their own words. No other name may join them.
TWICE = {
    "Attempt", "Call", "Channel", "Entry", "Host", "Job", "Place", "Refusal", "Refused",
    "StopAsked", "Submission", "Submitted", "Tasks", "Unreachable", "Worker",
}  # fmt: skip


def test_every_class_has_a_name_of_its_own() -> None:
    found = defaultdict(set)
    for path in python_files(PACKAGE):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(named(path))
    twice = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    more = [f"{name}: {', '.join(places)}" for name, places in twice.items() if name not in TWICE]
    assert not more, "\n".join(["several classes of one name:", *sorted(more)])
    assert twice.keys() >= TWICE, f"unique by now: {sorted(TWICE - twice.keys())}"
