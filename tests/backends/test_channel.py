"""Whoever asks for a machine is told of what is, not of what was before they asked."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from towline.agent.link import Link
from towline.backends.machines.channel import Channel
from towline.errors import HostError, Unusable
from towline.hosts.base import Host


class Way:
    """A host whose dials end as the test says, one after the other."""

    def __init__(self) -> None:
        self.dials: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

    async def dial(self, *_: Any, **__: Any) -> Any:
        dial = asyncio.get_running_loop().create_future()
        self.dials.put_nowait(dial)
        return await dial


async def greeted(link: Link) -> None:
    pass


def a_link() -> SimpleNamespace:
    async def greeted() -> None:
        pass

    return SimpleNamespace(
        closed=False, close=lambda: None, spoke_nonsense=False, greeted=greeted, heard_at=0.0
    )


def a_channel() -> Channel:
    host = cast("Host", SimpleNamespace(name="gpu1"))
    return Channel(
        host,
        "~",
        greeted,
        lambda error: None,
        lambda header, blob: None,
        busy=lambda: False,
        speaks_every_s=5.0,
    )


def test_a_dial_that_began_before_a_login_is_not_taken_for_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        way = Way()
        monkeypatch.setattr(Link, "dial", way.dial)
        channel = a_channel()
        first = asyncio.create_task(channel.reach(patient=False))
        (await way.dials.get()).set_exception(Unusable("gpu1: wants a password"))
        with pytest.raises(HostError, match="wants a password"):
            await first
        channel.redial()
        under_way = await way.dials.get()
        # Now a person logs in, and asks again.
        asked = asyncio.create_task(channel.reach(patient=False))
        await asyncio.sleep(0)
        under_way.set_exception(Unusable("gpu1: wants a password"))
        link = a_link()
        (await way.dials.get()).set_result(link)
        assert await asked is cast("Link", link)
        link.closed = True
        await channel.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_who_asks_while_nobody_dials_is_told_of_the_next_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        way = Way()
        monkeypatch.setattr(Link, "dial", way.dial)
        channel = a_channel()
        for _ in range(2):
            asked = asyncio.create_task(channel.reach(patient=False))
            (await way.dials.get()).set_exception(Unusable("gpu1: wants a password"))
            with pytest.raises(HostError, match="wants a password"):
                await asked
        await channel.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_link_that_has_just_broken_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        way = Way()
        monkeypatch.setattr(Link, "dial", way.dial)
        channel = a_channel()
        asked = asyncio.create_task(channel.reach())
        first = a_link()
        (await way.dials.get()).set_result(first)
        assert await asked is cast("Link", first)
        first.closed = True
        channel._closed(HostError("gpu1: closed by remote host"))
        second = a_link()

        async def answer() -> None:
            (await way.dials.get()).set_result(second)

        answered = asyncio.create_task(answer())
        # Asked before anything else has had its turn.
        assert await channel.reach() is cast("Link", second)
        await answered
        second.closed = True
        await channel.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
