"""Patterns of paths in .towignore."""

import pytest

from towline.snapshot.patterns import Patterns


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/er/a.log", True),
        ("*.log", "a.logs", False),
        ("data", "data/file", True),
        ("data", "sub/data/file", True),
        ("data", "database", False),
        ("/data", "data/file", True),
        ("/data", "sub/data", False),
        ("data/", "data", False),
        ("data/", "data/file", True),
        ("a/b", "a/b/c", True),
        ("a/b", "x/a/b", False),
        ("a/*.txt", "a/b/c.txt", True),
        ("# comment", "# comment", False),
        ("", "anything", False),
        ("[ab].txt", "b.txt", True),
        ("with space", "with space", True),
    ],
)
def test_pattern_matches(pattern: str, path: str, matches: bool) -> None:
    assert Patterns([pattern]).match_below(path) == matches


def test_last_pattern_that_matches_decides() -> None:
    patterns = Patterns(["*.log", "!keep.log", "sub/keep.log"])
    assert patterns.match_below("a.log")
    assert not patterns.match_below("keep.log")
    assert patterns.match_below("sub/keep.log")
