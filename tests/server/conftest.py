"""Passwords of a team's server, without the work that keeps strangers from guessing them."""

from functools import partial

import pytest
from argon2 import PasswordHasher

from towline.server.team import passwords


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are hashed for people, one takes a core for a twentieth of a second and 64 MB."""
    cheap = partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "PasswordHasher", cheap)
