"""What to type next, when ssh fails, leads to the same machine by the same way."""

import pytest

from towline.errors import HostError
from towline.hosts.ssh import SshHost

REFUSED = "ssh: connect to host x port 2222: Connection refused"
DENIED = "worker@x: Permission denied (publickey)."
CHANGED = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @"


def failure(said: str, destination: str, port: int | None, key: str | None = None) -> HostError:
    return SshHost("gpu1", destination, port, "/run/x", key).failure(255, said)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (REFUSED, "try: ssh -p 2222 -i ~/'keys/my key' worker@10.0.0.5 true"),
        ("something odd", "try: ssh -p 2222 -i ~/'keys/my key' worker@10.0.0.5 true"),
        (DENIED, "`ssh-copy-id -p 2222 -i ~/'keys/my key' worker@10.0.0.5`"),
        (CHANGED, "`ssh-keygen -R '[10.0.0.5]:2222'`"),
    ],
)
def test_hints_keep_user_port_and_key(said: str, hint: str) -> None:
    assert hint in failure(said, "worker@10.0.0.5", 2222, "~/keys/my key").hint


def test_hints_for_a_name_of_the_ssh_configuration_are_just_that_name() -> None:
    assert failure(REFUSED, "gpu1", None).hint.endswith("try: ssh gpu1 true")
    assert "`ssh-copy-id gpu1`" in failure(DENIED, "gpu1", None).hint
    assert "`ssh-keygen -R gpu1`" in failure(CHANGED, "gpu1", None).hint
