"""Nodes, aliases, rights, limits and the status of a team's server, asked through its door."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from builders import a_gpu, a_machine
from server.team_house import TeamHouse
from towline.engine.engine import request_of
from towline.model.events import MachineSeen, ProcessStarted, StopAsked
from towline.model.job import JobSpec, State
from towline.model.team.node import TeamNode, used_as
from towline.server.team.nodes import CLUSTER

MODEL = "GeForce GTX 1070"
TWO = a_machine("n0", gpus=(a_gpu(0, MODEL), a_gpu(1, MODEL)), cpus=8, clusters=())


def played(
    folder: Path, play: Callable[[TeamHouse], Coroutine[Any, Any, None]], **told: Any
) -> None:
    async def whole() -> None:
        house = TeamHouse(folder, **told)
        try:
            await house.sign_in()
            house.engine.store.nodes.add(TeamNode("n0", "ssh://pit@n0:22", machine=TWO))
            nodes = house.team.nodes
            nodes.all = house.engine.store.nodes.all()
            nodes.begin(house.parts, lambda: house.workspace.places(None))
            await settled(house)
            await play(house)
        finally:
            await house.close()

    asyncio.run(whole())


async def settled(house: TeamHouse) -> None:
    await house.engine.tell(StopAsked(()))


async def submit(house: TeamHouse, owner: str, request: str, **more: Any) -> int:
    spec = JobSpec(("true",), cluster=CLUSTER, owner=owner, request=request, **more)
    [job_id] = await house.engine.submit([replace(spec, title=f"{owner}s {request}")])
    return job_id


async def online(house: TeamHouse) -> None:
    """Let the core see the node as if it had answered; nobody runs what is placed there."""
    house.engine._perform = lambda order: None  # type: ignore[method-assign]
    node = house.team.nodes.find("n0")
    seen = replace(TWO, clusters=(CLUSTER,))
    house.engine.report(MachineSeen(used_as(seen, node, house.team.nodes.aliases)))
    await settled(house)


def test_a_node_shows_its_gpus_and_a_new_alias_counts_at_once(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        _, listed = await house.ask("ann", "GET", "/v1/nodes")
        assert [(one["name"], one["state"]) for one in listed["nodes"]] == [("n0", "offline")]
        assert "endpoint" not in listed["nodes"][0]
        scheduler = house.engine.core.scheduler
        assert scheduler.impossible(CLUSTER, request_of("[fast]"), "ann") is not None
        alias = {"resource": MODEL}
        assert (await house.ask("ann", "PUT", "/v1/aliases/fast", alias))[0] == 403
        assert (await house.ask("root", "PUT", "/v1/aliases/fast", alias))[0] == 200
        assert (await house.ask("root", "PUT", "/v1/aliases/fast", alias))[0] == 409
        assert (await house.ask("root", "PUT", "/v1/aliases/Fast!", alias))[0] == 400
        await online(house)
        assert scheduler.impossible(CLUSTER, request_of("[2:fast]"), "ann") is None
        _, node = await house.ask("root", "GET", "/v1/nodes/n0")
        assert node["endpoint"] == "ssh://pit@n0:22"
        assert [(one["index"], one["name"], one["alias"]) for one in node["resources"]] == [
            (0, MODEL, "fast"),
            (1, MODEL, "fast"),
        ]
        other = {"resource": "A100"}
        assert (await house.ask("root", "PATCH", "/v1/aliases/fast", other))[1] == {
            "name": "fast",
            "resource": "A100",
        }
        assert (await house.ask("root", "DELETE", "/v1/aliases/fast"))[0] == 200
        assert (await house.ask("ann", "GET", "/v1/aliases"))[1] == {"aliases": []}
        assert (await house.ask("ann", "GET", "/v1/aliases/fast"))[0] == 404

    played(tmp_path, play)


def test_nodes_are_added_once_and_what_is_wrong_is_said_in_words(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        new = {"endpoint": "ssh://nobody@127.0.0.1:1", "isolation": "none"}
        status, told = await house.ask("root", "PUT", "/v1/nodes/n0", new)
        assert (status, told["error"]["text"][:36]) == (
            409,
            "Node with same id already registered"[:36],
        )
        again = {**new, "endpoint": "pit@n0:22"}
        status, told = await house.ask("root", "PUT", "/v1/nodes/n1", again)
        assert (status, told["error"]["text"]) == (409, "pit@n0:22 is the node n0 already")
        odd = {**new, "isolation": "strong"}
        status, told = await house.ask("root", "PUT", "/v1/nodes/n1", odd)
        assert status == 400 and "walls or none" in told["error"]["text"]
        status, told = await house.ask("root", "PUT", "/v1/nodes/n1", {**new, "endpoint": "-x"})
        assert status == 400
        status, told = await house.ask("root", "PUT", "/v1/nodes/n1", new)
        assert status == 400 and told["error"]["text"].startswith("Problem adding node n1")
        assert (await house.ask("ann", "GET", "/v1/nodes/n1"))[0] == 404
        assert (await house.ask("root", "DELETE", "/v1/nodes/n0"))[0] == 200
        assert (await house.ask("root", "DELETE", "/v1/nodes/n0"))[0] == 404
        assert (await house.ask("ann", "GET", "/v1/nodes"))[1] == {"nodes": []}

    played(tmp_path, play)


def test_a_group_has_a_node_or_one_gpu_and_who_leaves_it_loses_what_waits(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await online(house)
        at = "/v1/nodes/n0/resources/1/groups/staff"
        assert (await house.ask("root", "PUT", at))[0] == 404
        await house.ask("root", "PUT", "/v1/groups/staff")
        await house.ask("root", "PUT", "/v1/accounts/ann/groups/staff")
        assert (await house.ask("ben", "PUT", at))[0] == 403
        _, node = await house.ask("root", "PUT", at)
        assert [one["groups"] for one in node["resources"]] == [[], ["staff"]]
        assert (await house.ask("root", "PUT", at.replace("/1/", "/7/")))[0] == 404
        await online(house)
        plan = house.engine.core.scheduler.impossible
        both = request_of("[2:gpu]")
        assert plan(CLUSTER, both, "ben") is not None and plan(CLUSTER, both, "ann") is None
        _, node = await house.ask("root", "PUT", "/v1/nodes/n0/groups/staff")
        assert node["groups"] == ["staff"]
        assert [one["groups"] for one in node["resources"]] == [["staff"], ["staff"]]
        await online(house)
        assert plan(CLUSTER, request_of("[]"), "ben") is not None
        first = await submit(house, "ann", "[2:gpu]")
        waits = await submit(house, "ann", "[gpu]")
        assert house.engine.job(first).state is State.STARTING
        await house.ask("root", "DELETE", "/v1/accounts/ann/groups/staff")
        await settled(house)
        ended = house.engine.job(waits)
        assert (ended.state, ended.reason.kind) == (State.STOPPED, "forbidden")
        assert house.engine.job(first).state is State.STARTING
        _, node = await house.ask("root", "DELETE", "/v1/nodes/n0/groups/staff")
        assert (node["groups"], [one["groups"] for one in node["resources"]]) == ([], [[], []])

    played(tmp_path, play)


def test_a_drained_node_takes_nothing_new_and_says_so(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await online(house)
        _, node = await house.ask("root", "PATCH", "/v1/nodes/n0", {"state": "drain"})
        assert node["state"] == "drain"
        await online(house)
        waits = await submit(house, "ann", "[]")
        assert house.engine.job(waits).state is State.QUEUED
        _, why = await house.ask("ann", "GET", f"/v1/jobs/{waits}/why")
        assert "is drained" in why["machines"][0]["reason"]
        assert (await house.ask("root", "PATCH", "/v1/nodes/n0", {"state": "gone"}))[0] == 400
        # How many fit there is changed without that.
        assert (await house.ask("root", "PATCH", "/v1/nodes/n0", {"cpus": -1}))[0] == 400
        _, node = await house.ask("root", "PATCH", "/v1/nodes/n0", {"cpus": 64})
        assert (node["state"], house.engine.store.nodes.all()["n0"].cpus) == ("drain", 64)
        await house.ask("root", "PATCH", "/v1/nodes/n0", {"state": "online"})
        await online(house)
        assert house.engine.job(waits).state is State.STARTING

    played(tmp_path, play)


def test_limits_of_users_and_groups_hold_and_are_told(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await online(house)
        at = "/v1/team/limits/users/ann"
        assert (await house.ask("ann", "PUT", at, {"gpus": 9}))[0] == 403
        assert (await house.ask("root", "PUT", "/v1/team/limits/users/no", {"gpus": 1}))[0] == 404
        assert (await house.ask("root", "PUT", "/v1/team/limits/all/ann", {"gpus": 1}))[0] == 404
        assert (await house.ask("root", "PUT", at, {"gpus": -1}))[0] == 400
        assert (await house.ask("root", "PUT", at, {"gpus": 1, "time_s": 60}))[0] == 200
        _, told = await house.ask("ben", "GET", "/v1/team/limits")
        anns = {"gpus": 1, "jobs": 0, "time_s": 60.0, "data_bytes": 0}
        assert told == {"users": {"ann": anns}, "groups": {}}
        first, second = await submit(house, "ann", "[gpu]"), await submit(house, "ann", "[gpu]")
        assert house.engine.job(first).spec.time_s == 60
        assert house.engine.job(second).state is State.QUEUED
        _, why = await house.ask("ann", "GET", f"/v1/jobs/{second}/why")
        assert why["text"] == "ann may use 1 GPU at once, and 1 is in use"
        await house.ask("root", "PUT", at, {})
        await settled(house)
        assert house.engine.job(second).state is State.STARTING

    played(tmp_path, play)


def test_the_status_has_who_runs_who_waits_in_turn_and_who_ended(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await online(house)
        first = await submit(house, "ann", "[2:gpu]")
        house.engine.report(ProcessStarted(first, 1, 0, house.now))
        anns = [await submit(house, "ann", "[2:gpu]") for _ in range(3)]
        house.now += 5
        bens = await submit(house, "ben", "[gpu]")
        ended = await submit(house, "ben", "[gpu]")
        await house.engine.stop([ended])
        status, told = await house.ask("ben", "GET", "/v1/team/status")
        assert status == 200 and told["more_waiting"] == 0
        [running] = told["running"]
        assert (running["id"], running["state"]) == (first, "running")
        assert running["allocation"] == [["n0", [0, 1]]]
        assert [(row["id"], row["position"]) for row in told["waiting"]] == [
            (bens, 1),
            *((job, place) for place, job in enumerate(anns, 2)),
        ]
        assert [row["id"] for row in told["done"]] == [ended]
        _, told = await house.ask("ann", "GET", "/v1/team/status?most=1")
        assert [row["id"] for row in told["waiting"]] == [bens, *anns]
        _, told = await house.ask("ben", "GET", "/v1/team/status?most=1")
        assert ([row["id"] for row in told["waiting"]], told["more_waiting"]) == ([bens], 3)
        _, one = await house.ask("ben", "GET", f"/v1/team/jobs/{anns[1]}")
        assert (one["position"], one["allocation"]) == (3, [])
        _, listed = await house.ask("ben", "GET", "/v1/team/jobs?user=ann&title=%25gpu%25&asc=date")
        assert [(row["id"], row["position"]) for row in listed["jobs"]] == [
            (first, 0),
            *((job, place) for place, job in enumerate(anns, 2)),
        ]
        last = await submit(house, "ben", "[gpu]")
        _, one = await house.ask("ben", "GET", f"/v1/team/jobs/{last}")
        assert one["position"] == 5

    played(tmp_path, play)


def test_where_others_are_nobodys_business_the_status_shows_ones_own(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await online(house)
        await submit(house, "ann", "[2:gpu]")
        await submit(house, "ann", "[2:gpu]")
        own = await submit(house, "ben", "[2:gpu]")
        ended = await submit(house, "ben", "[2:gpu]")
        others = [await submit(house, "ann", "[2:gpu]") for _ in range(21)]
        await house.engine.stop([ended, *others])
        _, told = await house.ask("ben", "GET", "/v1/team/status?most=1")
        assert told["running"] == [] and [row["id"] for row in told["waiting"]] == [own]
        assert [row["id"] for row in told["done"]] == [ended]
        assert told["more_waiting"] == 0
        _, listed = await house.ask("ben", "GET", "/v1/team/jobs")
        assert {row["id"] for row in listed["jobs"]} == {own, ended}

    played(tmp_path, play, private_status=True)


def test_what_was_used_and_what_nodes_have_is_known_after_a_restart(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await online(house)
        job_id = await submit(house, "ann", "[gpu]")
        assert house.engine.job(job_id).state is State.STARTING
        [share] = house.engine.store.nodes.used()
        assert share.owner == "ann"
        again = house.engine.store.nodes.all()["n0"]
        assert again.machine is not None and len(again.machine.gpus) == 2

    played(tmp_path, play)
