"""A team's server is looked after: whether it is well, its figures, and logs that do not fill the
disk."""

import asyncio
import json
from pathlib import Path

from server.team_house import TeamHouse
from towline.errors import CannotWrite
from towline.server.team.audit import Audit

LONG = 2000


def test_its_health_is_for_everybody_and_its_figures_for_members(tmp_path: Path) -> None:
    async def play() -> None:
        house = TeamHouse(tmp_path)
        try:
            await house.sign_in()
            assert await house.ask("", "GET", "/healthz") == (200, {"ok": True})
            assert (await house.ask("", "GET", "/metrics"))[0] == 401
            status, figures = await house.ask("ben", "GET", "/metrics")
            assert status == 200
            for name in (b"towline_requests_total", b"towline_request_seconds", b"towline_jobs"):
                assert name in figures, name

            # While what is accepted cannot be written down, it is not well, and says why.
            house.engine.stuck = CannotWrite("the disk is full")
            status, told = await house.ask("", "GET", "/healthz")
            assert status == 503 and "the disk is full" in told["error"]["text"]
        finally:
            await house.close()

    asyncio.run(play())


def test_a_long_log_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    audit = Audit(str(file))
    audit._handler.maxBytes, audit._handler.backupCount = LONG, 3
    for number in range(300):
        audit.note(at=number, who="ann", path="/v1/jobs", status=200, token="")
    audit.close()
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    for one in tmp_path.iterdir():
        assert one.stat().st_mode & 0o777 == 0o600 and one.stat().st_size <= LONG
    last = [json.loads(line) for line in file.read_text().splitlines()]
    assert last[-1] == {"at": 299, "who": "ann", "path": "/v1/jobs", "status": 200}
