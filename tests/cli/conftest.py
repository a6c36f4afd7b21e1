"""The real `tow` in front of a stand-in for the Engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stub import Stub


@pytest.fixture
def stub(tow_home: Path) -> Iterator[Stub]:
    stub = Stub(tow_home / "engine.sock")
    try:
        yield stub
    finally:
        stub.close()
