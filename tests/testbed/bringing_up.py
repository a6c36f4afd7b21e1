"""Hosts for as long as a fixture lasts: a part that cannot be started fails the test, by name."""

from collections.abc import Iterator
from typing import TypeVar

import pytest

from .hosts import Hosts
from .slot import TestbedError

Made = TypeVar("Made", bound=Hosts)


def brought_up(hosts: Made) -> Iterator[Made]:
    try:
        hosts.up()
    except TestbedError as error:
        pytest.fail(str(error), pytrace=False)
    yield hosts
    hosts.down()
