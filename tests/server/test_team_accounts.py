"""Accounts of a team's server: registering, signing in, groups, sharing."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from server.team_house import PASSWORD, TeamHouse, expired_token
from towline.model.job import Job, JobSpec, State
from towline.server.team.passwords import digest_of
from towline.server.team.settings import Registration

NEW = {"name": "eve", "password": "a long password", "fullname": "Eve"}


def played(
    folder: Path, play: Callable[[TeamHouse], Coroutine[Any, Any, None]], **told: Any
) -> None:
    async def whole() -> None:
        house = TeamHouse(folder, **told)
        try:
            await house.sign_in()
            await play(house)
        finally:
            await house.close()

    asyncio.run(whole())


def give_job(house: TeamHouse, number: int, owner: str, *groups: str) -> None:
    spec = JobSpec(argv=("x",), cluster="lab", owner=owner, title=f"{owner}s", groups=groups)
    [_] = house.engine.store.new_ids(1)
    job = Job(number, spec, State.DONE, submitted=house.now, ended=house.now)
    house.engine.store.commit({number: job}, {number}, (), house.now)


def test_whoever_registers_signs_in_and_is_recognised(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        status, made = await house.ask("", "POST", "/v1/accounts", NEW)
        assert (status, made["state"], made["administrator"]) == (200, "active", False)
        assert "password" not in json.dumps(made)
        status, token = await house.ask("", "POST", "/v1/tokens", {**NEW, "machine": "m"} | {})
        assert status == 400  # it takes no full name
        sign_in = {"name": "eve", "password": NEW["password"], "machine": "m"}
        status, token = await house.ask("", "POST", "/v1/tokens", sign_in)
        assert status == 200
        assert (await house.ask(token["token"], "GET", "/v1/accounts/~"))[1]["name"] == "eve"
        status, listed = await house.ask(token["token"], "GET", "/v1/tokens")
        assert [(one["machine"], one["this"]) for one in listed["tokens"]] == [("m", True)]
        assert (await house.ask(token["token"], "DELETE", "/v1/tokens/this"))[0] == 200
        assert (await house.ask(token["token"], "GET", "/v1/accounts/~"))[0] == 401
        assert (await house.ask("", "POST", "/v1/accounts", NEW))[0] == 409

    played(tmp_path, play)


def test_nothing_secret_is_in_the_store_or_the_logs(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        await house.ask("", "POST", "/v1/accounts", NEW)
        sign_in = {"name": "eve", "password": NEW["password"]}
        _, token = await house.ask("", "POST", "/v1/tokens", sign_in)
        await house.ask(token["token"], "DELETE", "/v1/tokens/this")
        house.engine.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for file in (house.paths.store_file, house.paths.audit_file):
            kept = Path(file).read_bytes()
            assert token["token"].encode() not in kept
            assert NEW["password"].encode() not in kept
        lines = [json.loads(line) for line in Path(house.paths.audit_file).read_text().splitlines()]
        assert [line["path"] for line in lines] == ["/v1/accounts", "/v1/tokens", "/v1/tokens/this"]
        assert lines[-1]["who"] == "eve"

    played(tmp_path, play)


def test_unknown_names_and_wrong_passwords_get_the_same_answer_and_not_many(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        answers = [
            await house.ask("", "POST", "/v1/tokens", {"name": name, "password": "wrong wrong"})
            for name in ("ann", "nobody")
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 401
        statuses = {
            (await house.ask("", "POST", "/v1/tokens", {"name": "ann", "password": "w" * 9}))[0]
            for _ in range(6)
        }
        assert 429 in statuses
        # Also the right one now: else it would be told apart.
        right = {"name": "ann", "password": PASSWORD}
        assert (await house.ask("", "POST", "/v1/tokens", right))[0] == 429
        house.now += 60
        assert (await house.ask("", "POST", "/v1/tokens", right))[0] == 200

    played(tmp_path, play)


@pytest.mark.parametrize("way", ["invitation", "approval"])
def test_members_come_by_invitation_or_are_agreed_to(tmp_path: Path, way: str) -> None:
    async def play(house: TeamHouse) -> None:
        rows = house.engine.store.accounts
        if way == "invitation":
            assert (await house.ask("", "POST", "/v1/accounts", NEW))[0] == 403
            wrong = {**NEW, "invitation": "made up"}
            assert (await house.ask("", "POST", "/v1/accounts", wrong))[0] == 403
            rows.add_invitation(digest_of("code"), house.now + 60)
            good = {**NEW, "invitation": "code"}
            assert (await house.ask("", "POST", "/v1/accounts", good))[0] == 200
            another = {**good, "name": "eva"}
            assert (await house.ask("", "POST", "/v1/accounts", another))[0] == 403
            return
        assert (await house.ask("", "POST", "/v1/accounts", NEW))[1]["state"] == "pending"
        sign_in = {"name": "eve", "password": NEW["password"]}
        assert (await house.ask("", "POST", "/v1/tokens", sign_in))[0] == 403
        state = {"state": "active"}
        assert (await house.ask("ann", "PATCH", "/v1/accounts/eve", state))[0] == 403
        assert (await house.ask("root", "PATCH", "/v1/accounts/eve", state))[0] == 200
        assert (await house.ask("", "POST", "/v1/tokens", sign_in))[0] == 200

    played(tmp_path, play, registration=Registration(way))


def test_a_token_that_expired_or_whose_account_is_gone_opens_nothing(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        old = expired_token(house, "ann")
        assert (await house.ask(old, "GET", "/v1/jobs"))[0] == 401
        assert (await house.ask("ann", "GET", "/v1/jobs"))[0] == 200
        assert (await house.ask("root", "DELETE", "/v1/accounts/ann"))[0] == 200
        assert (await house.ask("ann", "GET", "/v1/jobs"))[0] == 401
        taken = {"name": "ann", "password": "another password"}
        assert (await house.ask("", "POST", "/v1/accounts", taken))[0] == 409
        assert (await house.ask("root", "POST", "/v1/accounts", taken))[0] == 200
        house.now += house.settings.token_days * 86400 + 1
        assert (await house.ask("root", "GET", "/v1/jobs"))[0] == 401

    played(tmp_path, play)


def test_a_new_password_needs_the_old_one_and_ends_the_other_tokens(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        first = house.tokens["ann"]
        await house.sign_in("ann")
        new: dict[str, Any] = {"password": "another password"}
        assert (await house.ask("ann", "PATCH", "/v1/accounts/~", new))[0] == 401
        new["verification"] = PASSWORD
        assert (await house.ask("ann", "PATCH", "/v1/accounts/~", new))[0] == 200
        assert (await house.ask(first, "GET", "/v1/jobs"))[0] == 401
        assert (await house.ask("ann", "GET", "/v1/jobs"))[0] == 200
        rise = {"administrator": True, "verification": "another password"}
        assert (await house.ask("ann", "PATCH", "/v1/accounts/~", rise))[0] == 403
        # Somebody has to be left who administers.
        assert (await house.ask("root", "DELETE", "/v1/accounts/~"))[0] == 400

    played(tmp_path, play)


def test_a_job_is_open_to_its_groups_and_known_to_everybody(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        give_job(house, 1, "ann")
        assert (await house.ask("root", "PUT", "/v1/groups/students"))[0] == 200
        assert (await house.ask("ben", "GET", "/v1/jobs/1"))[0] == 403
        status, short = await house.ask("ben", "GET", "/v1/team/jobs/1")
        assert (status, short["title"], "groups" in short) == (200, "anns", False)
        assert (await house.ask("ben", "PUT", "/v1/jobs/1/groups/students"))[0] == 403
        shared = await house.ask("ann", "PUT", "/v1/jobs/1/groups/students")
        assert shared == (200, {"groups": ["students"]})
        assert (await house.ask("ben", "GET", "/v1/jobs/1"))[0] == 403
        assert (await house.ask("root", "PUT", "/v1/accounts/ben/groups/students"))[0] == 200
        assert (await house.ask("ben", "GET", "/v1/jobs/1"))[0] == 200
        assert (await house.ask("root", "DELETE", "/v1/groups/students"))[0] == 200
        assert (await house.ask("ben", "GET", "/v1/jobs/1"))[0] == 403
        # A later group of the same name is another one.
        assert (await house.ask("root", "PUT", "/v1/groups/students"))[0] == 200
        assert (await house.ask("root", "PUT", "/v1/accounts/ben/groups/students"))[0] == 200
        assert (await house.ask("ben", "GET", "/v1/jobs/1"))[0] == 403

    played(tmp_path, play)


def test_a_group_that_ended_is_off_what_was_submitted_with_it(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        give_job(house, 1, "ann", "students")
        for _ in range(2):
            assert (await house.ask("root", "PUT", "/v1/groups/students"))[0] == 200
            assert (await house.ask("root", "PUT", "/v1/accounts/ben/groups/students"))[0] == 200
            seen = (await house.ask("ben", "GET", "/v1/jobs/1"))[0]
            assert (await house.ask("root", "DELETE", "/v1/groups/students"))[0] == 200
        assert seen == 403

    played(tmp_path, play)


def test_others_jobs_are_unknown_where_the_status_is_private(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        give_job(house, 1, "ann")
        assert (await house.ask("ben", "GET", "/v1/team/jobs/1"))[0] == 404
        assert (await house.ask("ben", "GET", "/v1/jobs/1"))[0] == 404
        assert (await house.ask("ann", "GET", "/v1/team/jobs/1"))[0] == 200

    played(tmp_path, play, private_status=True)


def test_what_is_too_large_is_refused_before_it_is_kept(tmp_path: Path) -> None:
    async def play(house: TeamHouse) -> None:
        large = b'{"name": "' + b"x" * 100_000 + b'"}'
        assert (await house.ask("", "POST", "/v1/tokens", raw=large))[0] == 413
        assert (await house.ask("ann", "POST", "/v1/jobs/stop", raw=b" " * (17 << 20)))[0] == 413

    played(tmp_path, play)
