"""Whatever is asked of a running Engine, it answers in words and lives.

`TOWLINE_FUZZ_REQUESTS=50000 pytest tests/fuzz/test_any_request.py` is the long form.
"""

import os
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from e2e.api import ask
from testbed.tow import Tow
from towline.server import routes

REQUESTS = int(os.environ.get("TOWLINE_FUZZ_REQUESTS", "200"))
SEED = int(os.environ.get("TOWLINE_FUZZ_SEED", "1"))
TEXTS = [
    "", "x", "\0", "\ud800", "../..", "a" * 3000, "-1", "0", "1", "2", str(2**63), str(10**30),
    "1e400", "é", "local", "true", "/tmp", "nan",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2**31, 2**63, 10**30, 1.5, None, True, False]
NAMES = [
    "jobs", "ids", "argv", "cwd", "name", "cluster", "env", "states", "base", "lines", "back",
    "port", "local", "machines", "request", "title", "now", "key", "path", "process", "slurm",
    "host", "only", "snapshot", "time", "retries",
]  # fmt: skip
PARAMETERS = [
    "path",
    "limit",
    "offset",
    "state",
    "cluster",
    "all",
    "name",
    "cwd",
    "mode",
    "since",
    "job",
    "batch",
]


def all_routes() -> list[tuple[str, str]]:
    folder = Path(routes.__file__).parent
    texts = [file.read_text() for file in sorted(folder.glob("*.py"))]
    found = [
        one for text in texts for one in re.findall(r'@(get|post|put|delete)\("([^"]+)"', text)
    ]
    return [(method.upper(), path) for method, path in found if "retire" not in path]


def quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


class Fuzzer:
    def __init__(self, folder: Path) -> None:
        self.random = random.Random(SEED)
        self.folder = folder

    def junk(self, depth: int = 0) -> Any:
        kind = self.random.randrange(8)
        if kind < 3 or depth > 3:
            return self.random.choice(TEXTS)
        if kind < 5:
            return self.random.choice(NUMBERS)
        count = self.random.randrange(5)
        if kind < 7:
            return [self.junk(depth + 1) for _ in range(count)]
        return {self.random.choice(NAMES): self.junk(depth + 1) for _ in range(count)}

    def target(self, path: str) -> str:
        numbers = ["1", "2", "0", "-1", str(2**63), str(10**30)]
        path = re.sub(r"\{[^}]*:int\}", lambda _: self.random.choice(numbers), path)
        path = re.sub(r"\{[^}]*\}", lambda _: quoted(self.random.choice(TEXTS)) or "x", path)
        names = self.random.sample(PARAMETERS, self.random.randrange(4))
        chosen = [f"{name}={quoted(self.random.choice(TEXTS))}" for name in names]
        if path == "/v1/events":
            chosen.append("follow=0")  # else it never ends
        return path + "?" + "&".join(chosen) if chosen else path

    def body(self, path: str) -> Any:
        body = self.junk()
        if "jobs" in path and self.random.random() < 0.5:
            extra = body if isinstance(body, dict) else {}
            return {"jobs": [{"argv": ["true"], "cwd": str(self.folder), **extra}]}
        return body


@pytest.mark.slow
@pytest.mark.timeout(120 + REQUESTS // 10)
def test_no_request_makes_the_engine_fail(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    fuzzer, ways = Fuzzer(tow.folder), all_routes()
    assert len(ways) > 30
    pid = (tow_home / "engine.pid").read_text()
    for _ in range(REQUESTS):
        method, path = fuzzer.random.choice(ways)
        target, body = fuzzer.target(path), None if method == "GET" else fuzzer.body(path)
        status, answer = ask(tow_home, method, target, body)
        assert status != 500, (method, target, body, answer)
    assert tow("run", "true").returncode == 0
    assert (tow_home / "engine.pid").read_text() == pid
