"""Words are made where people look, and nobody reads them back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from test_architecture import PACKAGE, python_files, tree

#: Where what others print is read, and what older versions wrote; nobody else reads sentences.
READERS = (
    *(
        "agent/",
        "backends/slurm/",
        "backends/gridengine/",
        "config/",
        "hosts/",
        "probes/",
        "snapshot/",
    ),
    *("store/older.py", "store/migrations.py"),
)
READING = ("startswith", "endswith", "removeprefix", "removesuffix", "replace", "partition")
#: A word and a space behind it: the beginning of a sentence, or a piece of one.
WORDS = re.compile(r"\b[a-z]{2,}\b[,:;]? ")
#: Names of commands, as they are typed.
NO_SENTENCES = ("tow ", "tow batch ")


def texts_in(node: ast.expr, known: dict[str, list[str]]) -> list[str]:
    """The texts that an expression consists of, also under the name that a file gives them."""
    if isinstance(node, ast.Name):
        return known.get(node.id, [])
    return [
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def sentences_read(path: Path) -> Iterator[tuple[int, str]]:
    """Where a text is told apart by the words in it."""
    found = tree(path)
    known = {
        target.id: texts_in(node.value, {})
        for node in found.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(found):
        texts: list[str] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in READING:
                texts = [text for arg in node.args[:1] for text in texts_in(arg, known)]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            literal = isinstance(node.left, ast.Constant | ast.Name | ast.JoinedStr)
            texts = texts_in(node.left, known) if literal else []
        for text in texts:
            if WORDS.search(text) and text not in NO_SENTENCES:
                yield getattr(node, "lineno", 0), text


def test_nobody_reads_a_sentence_back() -> None:
    """What was put into words is for people: programs look at the data that it was made of."""
    wrong = [
        f"{named(path)}:{line} looks for {text!r}"
        for path in python_files(PACKAGE)
        if not named(path).startswith(READERS)
        for line, text in sentences_read(path)
    ]
    assert not wrong, "\n".join(wrong)
