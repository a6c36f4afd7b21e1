"""A team's server as a process of its own, on this machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from testbed.waiting import wait_until
from towline.client.remote import RemoteSession, read_connect_file
from towline.errors import Unreachable

PASSWORD = "correct horse battery"
ADMINISTRATOR = "root"
HERE = 'default_cluster = "here"\n[clusters.here]\nmachines = ["this"]\n'


class TeamServer:
    """`tow server init`, then `run`; `user` signs somebody in who is made if need be."""

    def __init__(self, folder: Path, config: str = HERE, registration: str = "open") -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.program = [sys.executable, "-m", "towline.cli.main", "server"]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TOWLINE_")}
        self.port = _free_port()
        self.tow(
            *("init", str(folder), "--admin", ADMINISTRATOR, "--host", "127.0.0.1"),
            *("--port", str(self.port), "--url", f"https://127.0.0.1:{self.port}"),
            *("--registration", registration, "--password-stdin"),
            input=f"{PASSWORD}\n",
        )
        settings = folder / "server.toml"
        settings.write_text(settings.read_text().replace('isolation = ""', 'isolation = "none"'))
        (folder / "config.toml").write_text(config)
        self.connect_file = folder / ".pitconnect.txt"

    def tow(self, *words: str, input: str = "") -> str:
        done = subprocess.run(
            [*self.program, *words], env=self.env, input=input, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def launch(self) -> None:
        """Run it, and do not wait until it serves."""
        out = (self.folder / "said.txt").open("w")
        with out:
            self.process = subprocess.Popen(
                [*self.program, "run", str(self.folder)],
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def start(self) -> str:
        """Run it; the first line that it says."""
        self.launch()
        said = self.folder / "said.txt"

        def serves() -> bool:
            assert self.process and self.process.poll() is None, said.read_text()
            return "serving" in said.read_text() and self.answers()

        wait_until(serves, 60, lambda: said.read_text())
        return said.read_text().splitlines()[0]

    def answers(self) -> bool:
        try:
            return bool(self.session("").call("GET", "/healthz")["ok"])
        except Unreachable:
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def session(self, token: str) -> RemoteSession:
        url, certificate = read_connect_file(self.connect_file.read_text())
        return RemoteSession(url, certificate, token)

    def user(self, name: str) -> RemoteSession:
        """A session of somebody."""
        anybody = self.session("")
        if not anybody.call("GET", f"/v1/accounts/{name}/exists")["exists"]:
            anybody.call("POST", "/v1/accounts", {"name": name, "password": PASSWORD})
        ask = {"name": name, "password": PASSWORD, "machine": "here"}
        return self.session(anybody.call("POST", "/v1/tokens", ask)["token"])


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
