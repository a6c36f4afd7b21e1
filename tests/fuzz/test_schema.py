"""The API does what its own description says, whatever is asked of it.

`TOWLINE_FUZZ_EXAMPLES=50 pytest tests/fuzz/test_schema.py` is the long form: 20,000 requests.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import testbed.relay
from e2e.api import ask
from testbed.tow import Tow
from towline.server.openapi import document
from towline.server.routes import ENDPOINTS

EXAMPLES = os.environ.get("TOWLINE_FUZZ_EXAMPLES", "1")
#: What ends the Engine, never ends by itself, or calls machines that may be anywhere.
LEFT_OUT = r"retire|events|follow|/v1/run|limits|/v1/clusters$|slurm|doctor"
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"


@contextmanager
def relay(path: Path) -> Iterator[int]:
    """A TCP port that leads to a unix socket."""
    command = [sys.executable, testbed.relay.__file__, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * int(EXAMPLES))
def test_the_api_keeps_to_its_own_description(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    pid = (tow_home / "engine.pid").read_text()
    with relay(tow_home / "engine.sock") as port:
        url = f"http://127.0.0.1:{port}/v1/schema/openapi.json"
        choice = ["--exclude-path-regex", LEFT_OUT, "--checks", CHECKS]
        effort = ["--max-examples", EXAMPLES, "--workers", "2", "--request-timeout", "60"]
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, *choice, *effort]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tow.folder, env=tow.env)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    sent = re.search(r"([\d,]+) generated", done.stdout)
    assert sent is not None and int(sent[1].replace(",", "")) > 200, done.stdout[-3000:]
    assert (tow_home / "engine.pid").read_text() == pid
    assert tow("run", "true").returncode == 0


def test_every_endpoint_is_described(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    status, served = ask(tow_home, "GET", "/v1/schema/openapi.json")
    assert status == 200 and served["paths"].keys() >= document(ENDPOINTS)["paths"].keys()
    operations = [one for path in served["paths"].values() for one in path.values()]
    assert len(operations) == len(ENDPOINTS) + 1
    assert all(one["summary"] and one["responses"]["200"]["content"] for one in operations)
    status, page = ask(tow_home, "GET", "/v1/schema")
    assert status == 200 and b"/v1/jobs/{job_id:int}/why" in page
