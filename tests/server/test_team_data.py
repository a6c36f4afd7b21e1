"""The data of a team through its routes: rights, pieces, quotas, a full disk."""

import asyncio
import hashlib
import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from server.data_house import DataHouse, played, refused
from towline.errors import ConfigError
from towline.server.team.data.data import DataFiles, TeamData


def test_each_domain_is_for_whom_it_is(tmp_path: Path) -> None:
    """Ancestor: shared is read-only for everyone, groups for members, users for themselves."""

    async def scenario(house: DataHouse) -> None:
        (house.root / "shared" / "set.bin").write_bytes(b"all")
        may = {
            "shared": {"root": "r", "ann": "r", "ben": "r"},
            "group:staff": {"root": "rw", "ann": "rw", "ben": ""},
            "user:ann": {"root": "rw", "ann": "rw", "ben": ""},
            "home": {"root": "rw", "ann": "rw", "ben": "rw"},
        }
        for domain, rights in may.items():
            for who, has in rights.items():
                read = (await house.do(who, "GET", f"{domain}/files"))[0]
                wrote = (await house.put(who, domain, f"{who}.txt", who.encode()))[0]
                made = (await house.do(who, "PUT", f"{domain}/folder", path="d"))[0]
                gone = (await house.do(who, "DELETE", f"{domain}/file", path="d"))[0]
                assert read == (200 if "r" in has else 403), (domain, who)
                assert wrote == made == gone == (200 if "w" in has else 403), (domain, who)
        assert (house.root / "home" / "ann" / "ann.txt").read_text() == "ann"
        assert (house.root / "home" / "ann" / "root.txt").read_text() == "root"
        assert await house.names("ben", "home") == ["file ben.txt"]
        assert await house.names("ben", "shared") == ["file set.bin"]
        assert stat.S_IMODE(house.root.stat().st_mode) == 0o700
        for strange in ("user:carl", "group:none"):
            assert refused(await house.do("root", "GET", f"{strange}/files")) == (404, "not_found")
            assert refused(await house.do("ben", "GET", f"{strange}/files")) == (403, "forbidden")
        lines = (tmp_path / "audit.log").read_text().splitlines()
        noted = [json.loads(line) for line in lines if "group:staff/file" in line]
        found = {(one["who"], one["method"], one.get("data"), one["status"]) for one in noted}
        assert {("ann", "PUT", "ann.txt", 200), ("ben", "POST", "ben.txt", 403)} <= found

    played(tmp_path, scenario)


def test_a_file_comes_in_pieces_and_is_there_only_once_it_is_whole(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        data = os.urandom(500_000)
        about: dict[str, Any] = {
            "path": "deep/down/set.bin",
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "mode": "0755",
        }
        _, answer = await house.do("ann", "POST", "home/file", **about)
        assert answer == {"offset": 0, "complete": False}
        status, answer = await house.do("ann", "PUT", "home/file", data[:200_000], **about)
        assert (status, answer) == (200, {"offset": 200_000, "complete": False})
        # Nobody sees what is not whole, and another server goes on with it.
        assert await house.names("ann", "home") == []
        house.team.data.files = DataFiles()
        _, answer = await house.do("ann", "POST", "home/file", **about)
        assert answer == {"offset": 200_000, "complete": False}
        # What comes ahead of its turn is not taken; what comes twice counts once.
        _, answer = await house.do(
            "ann", "PUT", "home/file", data[300_000:], **about, offset=300_000
        )
        assert answer == {"offset": 200_000, "complete": False}
        _, answer = await house.do(
            "ann", "PUT", "home/file", data[150_000:], **about, offset=150_000
        )
        assert answer == {"offset": 500_000, "complete": True}
        placed = house.root / "home" / "ann" / "deep" / "down" / "set.bin"
        assert placed.read_bytes() == data
        assert stat.S_IMODE(placed.stat().st_mode) == 0o755
        assert sorted(os.listdir(house.root / "home" / "ann")) == ["deep"]
        # The same again: nothing has to travel.
        assert (await house.do("ann", "POST", "home/file", **about))[1]["complete"]

    played(tmp_path, scenario)


def test_a_range_of_a_file_is_read_and_a_file_that_changed_is_not_gone_on_with(
    tmp_path: Path,
) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.put("ann", "home", "set", b"0123456789")
        _, found = await house.do("ann", "GET", "home/stat", path="set", hash=1)
        assert found["sha256"] == hashlib.sha256(b"0123456789").hexdigest()
        known = {"path": "set", "version": found["version"]}
        assert await house.do("ann", "GET", "home/file", **known, offset=3, limit=4) == (
            *(200, 3456),
        )
        await house.put("ann", "home", "set", b"other")
        assert refused(await house.do("ann", "GET", "home/file", **known)) == (409, "exists")

    played(tmp_path, scenario)


def test_a_folder_that_others_look_into_is_not_taken_for_the_data(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="other accounts can look into"):
        TeamData(str(place), *cast("tuple[Any, Any]", (None, None))).prepare()
    assert stat.S_IMODE(place.stat().st_mode) == 0o755 and os.listdir(place) == []
    with pytest.raises(ConfigError, match="Not a directory"):
        TeamData("/dev/null/data", *cast("tuple[Any, Any]", (None, None))).prepare()
    place.chmod(0o700)
    data = TeamData(str(place), *cast("tuple[Any, Any]", (None, None)))
    data.prepare()
    mark = data.mark
    data.prepare()
    assert data.mark == mark and len(mark[1]) == 32


def test_what_has_another_hash_is_not_taken(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.put("ann", "home", "x", b"before")
        about: dict[str, Any] = {
            "path": "x",
            "size": 4,
            "sha256": hashlib.sha256(b"good").hexdigest(),
        }
        await house.do("ann", "POST", "home/file", **about)
        assert refused(await house.do("ann", "PUT", "home/file", b"evil", **about)) == (
            400,
            "usage",
        )
        assert refused(await house.do("ann", "PUT", "home/file", b"good", **about)) == (
            409,
            "exists",
        )
        await house.do("ann", "POST", "home/file", **about)
        answer = await house.do("ann", "PUT", "home/file", b"goodness", **about)
        assert refused(answer) == (400, "usage")
        assert (house.root / "home" / "ann" / "x").read_bytes() == b"before"
        assert refused(await house.put("ann", "home", "", b"x")) == (400, "usage")
        await house.do("ann", "PUT", "home/folder", path="folder/in")
        assert refused(await house.put("ann", "home", "folder", b"x")) == (400, "usage")
        assert refused(await house.put("ann", "home", "x/y", b"x")) == (400, "usage")
        assert refused(await house.do("ann", "DELETE", "home/file", path="/")) == (400, "usage")

    played(tmp_path, scenario)


def test_slow_disks_and_long_files_keep_nothing_else_from_being_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many ask for what takes long: the Engine writes all the same."""
    free = threading.Event()
    monkeypatch.setattr("towline.server.team.data.tree.described", lambda *_, **__: free.wait())

    async def scenario(house: DataHouse) -> None:
        asked = [asyncio.create_task(house.do("ann", "GET", "home/stat")) for _ in range(40)]
        try:
            for group in ("one", "two", "three"):
                assert (await house.ask("root", "PUT", f"/v1/groups/{group}", {}))[0] == 200
        finally:
            free.set()
            await asyncio.gather(*asked)

    played(tmp_path, scenario)


def test_nobody_has_more_than_their_quota(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        for kind, name in (("users", "ann"), ("groups", "staff")):
            body = {"data_bytes": 1000}
            assert (await house.ask("root", "PUT", f"/v1/team/limits/{kind}/{name}", body))[
                0
            ] == 200
        for domain in ("home", "group:staff"):
            assert (await house.put("ann", domain, "a", bytes(600)))[0] == 200
            status, answer = await house.put("ann", domain, "b", bytes(600))
            assert (status, answer["error"]["code"]) == (507, "quota")
            assert (
                "may have 1 KB: it has 600 bytes, and this would be 600 bytes more"
                in (answer["error"]["text"])
            )
            # What replaces something counts for the difference, and what is deleted no more.
            assert (await house.put("ann", domain, "a", bytes(1000)))[0] == 200
            assert refused(await house.put("ann", domain, "c", b"x")) == (507, "quota")
            assert (await house.do("ann", "DELETE", f"{domain}/file", path="a"))[0] == 200
            assert (await house.put("ann", domain, "b", bytes(600)))[0] == 200
        # What is on its way counts, too, so that two at once cannot both have the last of it.
        about: dict[str, Any] = {"size": 300, "sha256": hashlib.sha256(bytes(300)).hexdigest()}
        assert (await house.do("ann", "POST", "home/file", path="one", **about))[0] == 200
        answer = await house.do("ann", "POST", "home/file", path="two", **about)
        assert refused(answer) == (507, "quota")
        # The administrator's own counts in the domain that it is in.
        assert refused(await house.put("root", "user:ann", "d", bytes(900))) == (507, "quota")
        _, answer = await house.ask("ann", "GET", "/v1/data")
        own = {
            one["domain"]: (one["writable"], one["bytes"], one["quota"])
            for one in answer["domains"]
        }
        assert own == {
            "shared": (False, 0, 0),
            "group:staff": (True, 600, 1000),
            "user:ann": (True, 600, 1000),
        }

    played(tmp_path, scenario)


def test_an_upload_that_nobody_goes_on_with_makes_room_for_others(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.ask("root", "PUT", "/v1/team/limits/users/ann", {"data_bytes": 1000})
        about: dict[str, Any] = {"path": "old", "size": 900}
        about["sha256"] = hashlib.sha256(bytes(900)).hexdigest()
        # Nothing has come of it for a while; then for days.
        for name, age_s in (("new", 3600.0), ("newer", 1e6)):
            await house.do("ann", "POST", "home/file", **about)
            await house.do("ann", "PUT", "home/file", bytes(800), **about)
            assert refused(await house.put("ann", "home", name, bytes(500))) == (507, "quota")
            (part,) = (house.root / "home" / "ann" / ".towline").iterdir()
            os.utime(part, (0, time.time() - age_s))
            assert (await house.put("ann", "home", name, bytes(500)))[0] == 200
            assert os.listdir(house.root / "home" / "ann") == [name]
            await house.do("ann", "DELETE", "home/file", path=name)

    played(tmp_path, scenario)


def test_what_a_removed_group_or_account_had_is_not_found_by_the_next_of_its_name(
    tmp_path: Path,
) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.put("ann", "group:staff", "old", b"old")
        await house.put("ann", "home", "mine", b"mine")
        assert (await house.ask("root", "DELETE", "/v1/groups/staff"))[0] == 200
        assert (await house.ask("root", "DELETE", "/v1/accounts/ann"))[0] == 200
        house.engine.store.accounts.add_group("staff", "")
        house.engine.store.accounts.add_member("staff", "ben")
        assert await house.names("ben", "group:staff") == []
        kept = sorted(path.name.rsplit("-", 3)[0] for path in (house.root / "removed").iterdir())
        assert kept == ["group-staff", "user-ann"]

    played(tmp_path, scenario)


@pytest.mark.real
def test_a_full_disk_is_said_and_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(tmp_path / "data")]
    subprocess.run(disk, check=True)
    try:

        async def scenario(house: DataHouse) -> None:
            data = os.urandom(1_500_000)
            assert (await house.put("ann", "home", "first", data))[0] == 200
            # Announced, it is refused at once; where the room goes away meanwhile, later.
            assert refused(await house.put("ann", "home", "second", bytes(2_000_000))) == (
                *(507, "no_room"),
            )
            late = os.urandom(1_000_000)
            about: dict[str, Any] = {
                "path": "late",
                "size": len(late),
                "sha256": hashlib.sha256(late).hexdigest(),
            }
            assert (await house.do("ann", "POST", "home/file", **about))[0] == 200
            (house.root / "fill").write_bytes(bytes(1_000_000))
            answer = await house.do("ann", "PUT", "home/file", late, **about)
            assert refused(answer) == (507, "no_room")
            assert await house.names("ann", "home") == ["file first"]
            status, found = await house.do("ann", "GET", "home/file", path="first")
            assert status == 200 and found == data
            # Half a file is not left in the way of others.
            (house.root / "fill").unlink()
            assert (await house.put("ann", "home", "late", late))[0] == 200

        played(tmp_path, scenario)
    finally:
        subprocess.run(["umount", str(tmp_path / "data")], check=True)
