"""Every route of a team's server refuses whom it must, and none fails over what it is sent."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from server.team_house import TeamHouse, expired_token
from towline.model.batch import Batch, Line
from towline.model.job import Attempt, Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.server.rights import HERE, RIGHTS, TEAM_RIGHTS, Right, check_complete
from towline.server.routes.team import TEAM_ENDPOINTS

#: What stands for a parameter of a path; they all name something of ann's.
NAMED = {
    "job_id": "1",
    "name": "ann",
    "group": "friends",
    "token": "",
    "local": "1",
    "node": "n0",
    "index": "0",
    "alias": "fast",
    "kind": "users",
    "domain": "user:ann",
}
#: A body that would do: else it would be refused for that.
BODIES: dict[str, Any] = {
    "/v1/jobs": {"jobs": [{"argv": ["true"], "cwd": "/"}]},
    "/v1/run": {"argv": ["true"], "cwd": "/"},
    "/v1/plan": {"argv": ["true"], "cwd": "/"},
    "/v1/batches": {"base": {"argv": ["true"], "cwd": "/"}, "lines": [{"argv": ["true"]}]},
    "/v1/batches/{name}/more": {"lines": [{"argv": ["true"]}]},
    "/v1/jobs/stop": {"ids": [1]},
    "/v1/jobs/retry": {"ids": [1]},
    "/v1/jobs/hold": {"ids": [1]},
    "/v1/jobs/release": {"ids": [1]},
    "/v1/jobs/remove": {"ids": [1]},
    "/v1/jobs/{job_id}/exec": {"argv": ["true"]},
    "/v1/jobs/{job_id}/fetch": {"files": []},
    "/v1/contents/missing": {"hashes": []},
    "/v1/snapshots": {"entries": []},
    "/v1/machines/redial": {"machines": []},
}


async def fill(house: TeamHouse) -> None:
    """Ann has a job that ended and a batch, in a group that ben is not in."""
    store, now = house.engine.store, house.now
    spec = JobSpec(argv=("x",), cluster="lab", owner="ann", title="anns")
    over = Attempt(1, (Slot("gpu1", ()),), endings={0: Ending(code=0, started=1.0)})
    list(store.new_ids(2))
    done = Job(1, spec, State.DONE, submitted=now, ended=now, attempt=over)
    store.commit({1: done}, {1}, (), now)
    batch = Batch("ann", spec, 2, 1, now, stopped=True)
    store.batches.add(batch, [Line(argv=("x",), number=1, title="x")])
    store.accounts.add_group("friends", "")
    await house.sign_in()
    NAMED["token"] = store.tokens.of("ann")[0].id


def target(path: str) -> str:
    named = re.sub(r"{(\w+)}", lambda found: NAMED[found[1]], path)
    return f"{named}?port=80" if path.endswith("/connect") else named


async def routes(house: TeamHouse) -> list[tuple[str, str, Right]]:
    """Method, path and right of all, as the OpenAPI document tells them."""
    status, document = await house.ask("root", "GET", "/v1/schema/openapi.json")
    assert status == 200
    rights = {(m, re.sub(r":\w+}", "}", path)): r for (m, path), r in TEAM_RIGHTS.items()}
    found = [
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    ]
    assert set(found) == rights.keys()
    return [(method, path, rights[method, path]) for method, path in found]


async def refusals(house: TeamHouse) -> list[str]:
    """What was not refused as it had to be."""
    wrong: list[str] = []
    expired = expired_token(house, "ann")
    strangers = [("no token", ""), ("an expired token", expired), ("a made-up one", "tow_x")]

    async def expect(who: str, told: str, method: str, path: str, *statuses: int) -> None:
        got, _ = await house.ask(who, method, target(path), BODIES.get(path))
        if got not in statuses:
            wrong.append(f"{method} {path} with {told}: {got}")

    for method, path, right in await routes(house):
        if right is Right.OPEN:
            continue
        for told, token in strangers:
            await expect(token, told, method, path, 401)
        if right is Right.ADMINISTER:
            await expect("ben", "a member's token", method, path, 403)
        elif right is Right.OWN and ("{" in path or "ids" in BODIES.get(path, ())):
            await expect("ben", "another member's token", method, path, 403, 404)
    return wrong


def test_every_route_refuses_no_token_an_old_one_anothers_and_a_member_without_the_right(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        house = TeamHouse(tmp_path)
        try:
            await fill(house)
            wrong = await refusals(house)
            assert not wrong, "\n".join(wrong)
            # None of it did anything.
            assert house.engine.store.accounts.groups().keys() == {"friends"}
            assert house.engine.store.job(1) is not None
            for who in ("root", "ann", "ben"):
                assert (await house.ask(who, "GET", "/v1/accounts/~"))[0] == 200
        finally:
            await house.close()

    asyncio.run(play())


def test_a_route_without_a_right_keeps_the_server_from_starting() -> None:
    served = [(one.method, one.path) for one in TEAM_ENDPOINTS]
    check_complete(served, TEAM_RIGHTS)
    with pytest.raises(ValueError, match="without an entry"):
        check_complete([*served, ("GET", "/v1/secrets")], TEAM_RIGHTS)


def test_what_touches_the_servers_own_machine_is_not_served() -> None:
    """Each is a route of a laptop's Engine, and none of a team's server."""
    assert RIGHTS.keys() >= HERE
    assert not HERE & {(one.method, one.path) for one in TEAM_ENDPOINTS}
