"""Who is at the other end of the Engine's socket."""

import os
import socket

import pytest

from towline.errors import Forbidden
from towline.server.peers import EngineOwner, peer_uid


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_uid(one) == os.getuid()


def test_the_owner_may_do_everything_and_nobody_else_anything() -> None:
    owner = EngineOwner()
    assert owner.principal_of(os.getuid()).administrator
    with pytest.raises(Forbidden, match=f"you are uid {os.getuid() + 1}"):
        owner.principal_of(os.getuid() + 1)
