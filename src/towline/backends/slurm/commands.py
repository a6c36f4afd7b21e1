"""Slurm's commands, run on the access node over the one channel."""

import math
from datetime import datetime
from typing import Any

from towline.agent.link import Link
from towline.backends.driver import Driver
from towline.model.names import shown_cluster
from towline.probes.slurm import (
    Listed,
    Site,
    account_words,
    association_words,
    complaint,
    config_words,
    detail_words,
    has_no_accounting,
    joined,
    queue_words,
    read_accounts,
    read_all_states,
    read_associations,
    read_details,
    read_plain_number,
    read_queue,
    read_site,
)
from towline.probes.slurm_nodes import Node, node_words, read_nodes
from towline.probes.slurm_places import Pending, pending_words, read_pending

_NOT_FOUND = 127
#: Most numbers named in one command line.
_MANY = 500


class SlurmSilent(Exception):
    """A command failed or gave no answer; what it said."""


def uptime_s(site: Site) -> float:
    """For how long the controller has been up; for ever where it does not say."""
    try:
        up = datetime.fromisoformat(site.as_of) - datetime.fromisoformat(site.booted)
    except ValueError:
        return math.inf
    return up.total_seconds()


class Commands:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        #: Only a login shell finds the commands.
        self.login = False
        self._has_accounting = True

    async def find(self, link: Link) -> None:
        """Find out how the commands are called here; a cluster without them is told of later."""
        self.login = False
        if (await self.call(link, ["sbatch", "--version"]))["code"] == _NOT_FOUND:
            self.login = True

    async def call(self, link: Link, words: list[str], timeout_s: float = 60.0) -> dict[str, Any]:
        answer, _ = await link.ask("call", argv=words, login=self.login, timeout_s=timeout_s)
        return answer

    async def list_jobs(self, link: Link) -> list[Listed]:
        answer = await self.call(link, queue_words(link.hello["user"]))
        if answer["code"]:
            raise SlurmSilent(complaint(answer["err"]))
        return read_queue(answer["out"])

    async def list_pending(self, link: Link) -> list[Pending]:
        """All that waits there, whoever it belongs to; nothing where the site does not say."""
        answer = await self.call(link, pending_words())
        return read_pending(answer["out"]) if answer["code"] == 0 else []

    async def ends_before(self, link: Link, number: str) -> list[str]:
        """How earlier runs of a job ended that was requeued, where the site keeps accounts."""
        if not self._has_accounting:
            return []
        answer = await self.call(link, account_words([number]))
        return read_all_states(answer["out"], number) if answer["code"] == 0 else []

    async def recall(self, link: Link, ids: list[str]) -> list[Listed]:
        """Jobs that the controller has forgotten, where the site keeps accounts."""
        found: list[Listed] = []
        numbers = list(dict.fromkeys(one.partition("_")[0] for one in ids))
        for at in range(0, len(numbers), _MANY):
            if not self._has_accounting:
                break
            answer = await self.call(link, account_words(numbers[at : at + _MANY]))
            if answer["code"] == _NOT_FOUND or has_no_accounting(answer["err"] + answer["out"]):
                self._has_accounting = False
            elif answer["code"]:
                raise SlurmSilent(complaint(answer["err"]))
            found += read_accounts(answer["out"])
        return found

    async def detail(self, link: Link, listed: Listed) -> Listed:
        """The same job with its exit code, as far as Slurm still knows it."""
        if listed.exit_code or listed.state == "CANCELLED":
            return listed
        answer = await self.call(link, detail_words(listed.id))
        found = read_details(answer["out"]) if answer["code"] == 0 else []
        return next((one for one in found if one.state == listed.state), listed)

    async def cancel(self, link: Link, ids: list[str]) -> None:
        await self.call(link, ["scancel", *joined(ids)])

    async def plain_number(self, link: Link, number: str) -> str:
        """srun knows the tasks of arrays only by numbers of their own."""
        if "_" not in number:
            return number
        answer = await self.call(link, detail_words(number))
        return read_plain_number(answer["out"]) or number

    async def site(self, link: Link) -> Site:
        return read_site((await self.call(link, config_words()))["out"])

    async def version(self, link: Link) -> str:
        """As sbatch tells it, e.g. `slurm 22.05.8`."""
        answer = await self.call(link, ["sbatch", "--version"])
        if answer["code"]:
            there = f"there is no sbatch on {shown_cluster(self.driver.name)}"
            raise SlurmSilent(there if answer["code"] == _NOT_FOUND else complaint(answer["err"]))
        return str(answer["out"]).strip()

    async def list_nodes(self, link: Link) -> list[Node]:
        answer = await self.call(link, node_words())
        if answer["code"]:
            raise SlurmSilent(complaint(answer["err"]))
        return read_nodes(answer["out"])

    async def accounts(self, link: Link) -> list[tuple[str, list[str]]]:
        """The user's accounts, each with the qualities of service it may ask for."""
        answer = await self.call(link, association_words(link.hello["user"]))
        return read_associations(answer["out"]) if answer["code"] == 0 else []
