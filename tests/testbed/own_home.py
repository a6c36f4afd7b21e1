"""A home of the tests' own: what is in a person's decides nothing, and nothing is left in it.

Login shells read profiles there, and what these start may take locks (`pyenv rehash` does).
"""

import os
import shutil
import tempfile
from pathlib import Path

#: Tells those who are started from here where the person's is.
PERSONS = "TOWLINE_TESTS_PERSONS_HOME"


def persons_home() -> Path:
    """Where interpreters and caches are that tests may use."""
    return Path(os.environ.get(PERSONS) or Path.home())


def take() -> str:
    """Have HOME lead to an empty folder; its path, where that was made here."""
    if PERSONS in os.environ:
        return ""  # a worker of a run that has one
    os.environ[PERSONS] = str(Path.home())
    os.environ["HOME"] = tempfile.mkdtemp(prefix="towline-tests-home-")
    return os.environ["HOME"]


def give_back(home: str) -> None:
    if home:
        os.environ["HOME"] = os.environ.pop(PERSONS)
        shutil.rmtree(home, ignore_errors=True)
