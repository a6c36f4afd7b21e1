"""What Ctrl-C means to a sweep that is waited for."""

import io
import sys

import pytest

from hydra_plugins.towline_launcher import _waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "typed, meant", [("d\n", "d"), ("what?\nKeep\n", "k"), ("s\n", "s"), ("", "s")]
)
def test_whoever_presses_ctrl_c_is_asked(
    typed: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert _waiting.asked() == meant


def test_where_nobody_can_be_asked_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("d\n"))
    assert _waiting.asked() == "s"
