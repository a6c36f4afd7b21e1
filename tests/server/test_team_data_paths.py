"""No path, link or race leads out of a domain of a team's data."""

import ctypes
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from server.data_house import DataHouse, played, refused


def test_no_path_leads_out_of_a_domain(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.put("ann", "home", "sub/mine.txt", b"mine")
        secret = tmp_path / "secret"
        secret.write_text("the key")
        home = house.root / "home" / "ann"
        (home / "link").symlink_to(secret)
        (home / "away").symlink_to(tmp_path)
        (home / "sub" / "up").symlink_to("..")
        os.mkfifo(home / "fifo")
        await house.put("ben", "home", "bens.txt", b"bens")
        for path in (
            *("link", "away/secret", "away", "sub/up/sub/mine.txt", "sub/../../ben/bens.txt"),
            *(
                "../ben/bens.txt",
                "/../../secret",
                "a\0b",
                "x" * 256,
                "y/" * 2100,
                "fifo",
                ".towline",
            ),
        ):
            for how in ("GET", "PUT", "DELETE"):
                about = (
                    {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()} if how == "PUT" else {}
                )
                if how == "DELETE" and path in ("link", "away", "fifo"):
                    continue
                answer = await house.do("ann", how, "home/file", b"x", path=path, **about)
                assert answer[0] in (400, 404, 409), (how, path, answer)
                assert "the key" not in json.dumps(answer[1])
            answer = await house.do("ann", "GET", "home/files", path=path)
            assert answer[0] in (400, 404), (path, answer)
        assert await house.names("ann", "home") == [
            *("link away", "other fifo", "link link", "dir sub"),
        ]
        # A file that takes the place of a link is no way through it, either.
        assert (await house.put("ann", "home", "link", b"plain"))[0] == 200
        assert secret.read_text() == "the key" and (home / "link").read_text() == "plain"
        # A link is deleted, never what it leads to.
        assert (await house.do("ann", "DELETE", "home/file", path="away"))[0] == 200
        assert secret.exists()

    played(tmp_path, scenario)


def exchange(one: Path, other: Path) -> None:
    """Each gets the other's name, from one moment to the next."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = -100, os.fsencode(one), -100, os.fsencode(other), 2
    assert libc.renameat2(*names) == 0, os.strerror(ctypes.get_errno())


@pytest.mark.slow
def test_a_folder_that_becomes_a_link_meanwhile_gives_nothing_away(tmp_path: Path) -> None:
    """Somebody swaps a folder and a link in a loop while others read, write and delete there."""

    async def scenario(house: DataHouse) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_text("secret")
        home = house.root / "home" / "ann"
        await house.put("ann", "home", "at/file", b"mine")
        (home / "trap").symlink_to(outside)
        over = threading.Event()

        def swap() -> None:
            while not over.is_set():
                exchange(home / "at", home / "trap")

        swapping = threading.Thread(target=swap)
        swapping.start()
        seen: set[Any] = set()
        try:
            for turn in range(100):
                status, answer = await house.do("ann", "GET", "home/file", path="at/file")
                seen.add(answer if status == 200 else status)
                await house.put("ann", "home", f"at/new{turn}", b"new")
                await house.do("ann", "DELETE", "home/file", path=f"at/new{turn}")
                await house.do("ann", "PUT", "home/folder", path=f"at/made{turn}/below")
                await house.do("ann", "DELETE", "home/file", path="at/secret")
        finally:
            over.set()
            swapping.join()
        assert seen <= {b"mine", 400, 404}, seen
        assert os.listdir(outside) == ["file"]

    played(tmp_path, scenario)


def test_a_folder_is_deleted_whole_also_what_is_closed_in_it(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.put("ann", "home", "run/logs/a", b"a")
        home = house.root / "home" / "ann"
        (home / "run" / "logs").chmod(0)
        (home / "run" / "away").symlink_to(tmp_path)
        assert (await house.do("ann", "DELETE", "home/file", path="run"))[0] == 200
        assert os.listdir(home) == []
        assert refused(await house.do("ann", "DELETE", "home/file", path="run")) == (
            404,
            "not_found",
        )

    played(tmp_path, scenario)


def test_what_is_moved_stays_in_its_domain(tmp_path: Path) -> None:
    async def scenario(house: DataHouse) -> None:
        await house.put("ann", "home", "a/x", b"x")
        await house.put("ann", "home", "y", b"before")
        (house.root / "home" / "ann" / "away").symlink_to(tmp_path)
        for to in ("../ben/x", "away/x", "a/x/z", "", ".towline/x", "none/x"):
            status, _ = await house.do("ann", "POST", "home/move", path="a/x", to=to)
            assert status in (400, 404), to
        assert refused(await house.do("ann", "POST", "home/move", path="a", to="a/b"))[0] == 400
        assert (await house.do("ann", "POST", "home/move", path="a/x", to="y"))[0] == 200
        assert await house.names("ann", "home") == ["dir a", "link away", "file y"]
        assert (await house.do("ann", "GET", "home/file", path="y"))[1] == b"x"
        answer = await house.do("ben", "POST", "user:ann/move", path="y", to="z")
        assert refused(answer) == (403, "forbidden")

    played(tmp_path, scenario)


def test_a_long_folder_is_told_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.server.team.data.tree.MOST_ENTRIES", 3)

    async def scenario(house: DataHouse) -> None:
        for number in range(5):
            (house.root / "shared" / f"{number}").touch()
        _, answer = await house.do("ben", "GET", "shared/files")
        assert [one["name"] for one in answer["entries"]] == ["0", "1", "2"] and answer["more"]
        _, answer = await house.do("ben", "GET", "shared/files", after="2")
        assert [one["name"] for one in answer["entries"]] == ["3", "4"] and not answer["more"]

    played(tmp_path, scenario)
