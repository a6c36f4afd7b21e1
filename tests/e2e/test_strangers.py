"""Another user who gets hold of the Engine's socket is told nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.tow import Tow

#: As another user, whom the permissions of the socket would let in.
ASK = """
import os, socket, sys
home = os.open(sys.argv[1], os.O_RDONLY)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
engine = socket.socket(socket.AF_UNIX)
engine.settimeout(60)
engine.connect(f"/proc/self/fd/{home}/engine.sock")
engine.sendall(b"GET /v1/jobs HTTP/1.1\\r\\nHost: towline\\r\\nConnection: close\\r\\n\\r\\n")
while piece := engine.recv(65536):
    sys.stdout.write(piece.decode())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_an_engine_serves_nobody_but_its_owner(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    tow_home.chmod(0o711)
    (tow_home / "engine.sock").chmod(0o666)
    asking = [sys.executable, "-c", ASK, str(tow_home)]
    told = subprocess.run(asking, capture_output=True, text=True, timeout=120)
    assert told.stdout.startswith("HTTP/1.1 403"), told
    assert "you are uid 65534" in told.stdout and '"jobs"' not in told.stdout
    assert tow("status").returncode == 0
