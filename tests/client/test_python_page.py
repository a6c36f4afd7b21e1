"""docs/python.md is true: what it types is typed here, in front of a real Engine."""

import doctest
import re
from pathlib import Path

import pytest

from testbed.tow import Tow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
HOW = doctest.ELLIPSIS | doctest.REPORT_ONLY_FIRST_FAILURE


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_every_example_of_the_page_does_what_it_shows(
    tow: Tow, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *examples = blocks()
    (tow.folder / "train.py").write_text(program)
    monkeypatch.chdir(tow.folder)
    typed = "\n".join(examples)
    page = doctest.DocTestParser().get_doctest(typed, {}, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=HOW).run(page, out=told.append)
    assert result.attempted > 20
    assert not result.failed, "".join(told)
