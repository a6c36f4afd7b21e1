"""A team's server does what its own description says, whatever a member asks of it.

`TOWLINE_FUZZ_EXAMPLES=50 pytest tests/fuzz/test_team_schema.py` is the long form: 20,000 requests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.team import TeamServer

EXAMPLES = os.environ.get("TOWLINE_FUZZ_EXAMPLES", "1")
#: What never ends by itself, calls machines, or ends what the requests are made with.
LEFT_OUT = r"events|follow|/v1/run|doctor|connect|/v1/tokens/"
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"


@pytest.mark.slow
@pytest.mark.timeout(240 + 60 * int(EXAMPLES))
def test_whatever_a_member_asks_the_server_keeps_to_its_description(tmp_path: Path) -> None:
    server = TeamServer(tmp_path / "server")
    try:
        server.start()
        member = server.user("ann")
        job = member.submit_ask({"argv": ["true"], "cwd": "/"}, "k")["id"]
        certificate = tmp_path / "certificate.pem"
        certificate.write_text(server.connect_file.read_text().partition("\n")[2])
        url = f"{member.url}/v1/schema/openapi.json"
        who = ["-H", f"Authorization: Bearer {member.token}", "--tls-verify", str(certificate)]
        choice = ["--exclude-path-regex", LEFT_OUT, "--checks", CHECKS]
        effort = ["--max-examples", EXAMPLES, "--workers", "2", "--request-timeout", "60"]
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, *who, *choice, *effort]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        sent = re.search(r"([\d,]+) generated", done.stdout)
        assert sent is not None and int(sent[1].replace(",", "")) > 200, done.stdout[-3000:]
        assert server.process is not None and server.process.poll() is None
        assert member.call("GET", f"/v1/jobs/{job}")["id"] == job
        assert " ERROR " not in (server.folder / "server.log").read_text()
    finally:
        server.stop()
