"""A queue's commands, run on its access node over the one channel."""

from typing import Any

from towline.agent.link import Link
from towline.backends.base import QueueSilent
from towline.backends.machines.driver import Driver
from towline.backends.queue.dialect import NOT_FOUND, Answer, Dialect, ListedEntry, Site, Words
from towline.model.names import shown_cluster
from towline.probes.nodes import QueueNode

#: Most numbers named in one command line.
_MANY = 500


def was_killed(code: int) -> bool:
    """It ended by a signal, or a shell around it says so: it may have done its work before."""
    return code < 0 or 128 < code <= 128 + 64


class Commands:
    """The commands of one queue, in its dialect."""

    def __init__(self, driver: Driver, dialect: Dialect) -> None:
        self.driver = driver
        self.dialect = dialect
        #: Shell text that the commands need before them, as the configuration has it.
        self.setup = ""
        #: Only a login shell finds the commands; or one that has run that text.
        self.login: bool | str = False
        self._has_accounts = True

    async def find(self, link: Link) -> None:
        """Find out how the commands are called here; a cluster without them is told of later."""
        self.login = self.setup or False
        if self.setup:
            return
        if (await self.call(link, self.dialect.version_words()))["code"] == NOT_FOUND:
            self.login = True

    async def call(self, link: Link, words: Words, timeout_s: float = 60.0) -> dict[str, Any]:
        answer, _ = await link.ask("call", argv=words, login=self.login, timeout_s=timeout_s)
        return answer

    async def _printed(self, link: Link, words: Words) -> str:
        """What a command printed; QueueSilent where it failed."""
        answer = await self.call(link, words)
        if answer["code"]:
            raise QueueSilent(self.dialect.complaint(answer["err"]))
        return str(answer["out"])

    async def _printed_if_told(self, link: Link, words: Words | None) -> str:
        """The same where nothing hangs on the answer: empty when there is none."""
        if words is None:
            return ""
        answer = await self.call(link, words)
        return str(answer["out"]) if answer["code"] == 0 else ""

    async def list_entries(self, link: Link) -> list[ListedEntry]:
        words = self.dialect.list_words(link.hello["user"])
        return self.dialect.read_list(await self._printed(link, words))

    async def places(self, link: Link, ids: list[str]) -> dict[str, tuple[int, int]]:
        """Which each is of those that wait, and of how many; of nobody where the site is silent."""
        told = await self._printed_if_told(link, self.dialect.pending_words())
        return self.dialect.read_places(told, ids)

    async def why_taken_back(self, link: Link, number: str, node: str) -> str:
        """Why the queue starts an entry again that ran on that node; empty where nothing tells."""
        accounts = self.dialect.recall_words([number]) if self._has_accounts else None
        told = await self._printed_if_told(link, accounts)
        nodes = await self.list_nodes(link)
        down = any(one.name == node and one.down for one in nodes)
        return self.dialect.why_taken_back(told, number, down)

    async def recall(self, link: Link, ids: list[str]) -> list[ListedEntry]:
        """Entries that the queue has forgotten, where the site keeps accounts."""
        found: list[ListedEntry] = []
        numbers = list(dict.fromkeys(one.partition("_")[0] for one in ids))
        for at in range(0, len(numbers), _MANY):
            words = self.dialect.recall_words(numbers[at : at + _MANY])
            if words is None or not self._has_accounts:
                break
            answer = await self.call(link, words)
            if not self.dialect.has_accounts(answer):
                self._has_accounts = False
            elif answer["code"]:
                raise QueueSilent(self.dialect.complaint(answer["err"]))
            found += self.dialect.read_recalled(answer["out"])
        return found

    async def detail(self, link: Link, listed: ListedEntry) -> ListedEntry:
        """The same entry with all that the queue still knows of its end."""
        words = self.dialect.detail_words(listed)
        told = await self._printed_if_told(link, words)
        return self.dialect.read_detail(told, listed) if told else listed

    async def explain(self, link: Link, numbers: list[str]) -> dict[str, str]:
        """Why entries wait, by their numbers, as far as the queue tells."""
        found: dict[str, str] = {}
        for at in range(0, len(numbers), _MANY):
            words = self.dialect.explain_words(numbers[at : at + _MANY])
            told = await self._printed_if_told(link, words)
            found |= self.dialect.read_explained(told)
            checked = await self._printed_if_told(link, self.dialect.check_words(told))
            found |= self.dialect.read_checked(checked)
        return found

    async def clear(self, link: Link, ids: list[str]) -> None:
        """Have entries in error start after all; QueueSilent where that is refused."""
        if words := self.dialect.clear_words(ids):
            answer = await self.call(link, words)
            if not self.dialect.was_cleared(answer):
                raise QueueSilent(self.dialect.complaint(answer["err"] or answer["out"]))

    async def cancel(self, link: Link, ids: list[str]) -> None:
        await self.call(link, self.dialect.cancel_words(ids))

    async def beside_number(self, link: Link, number: str) -> str:
        """The number by which a command that runs beside an entry knows it."""
        told = await self._printed_if_told(link, self.dialect.number_words(number))
        return self.dialect.read_number(told) or number

    async def site(self, link: Link) -> Site:
        return self.dialect.read_site((await self.call(link, self.dialect.site_words()))["out"])

    async def version(self, link: Link) -> str:
        """As the queue tells it."""
        answer = await self.call(link, self.dialect.version_words())
        if answer["code"] == NOT_FOUND:
            where = shown_cluster(self.driver.name)
            raise QueueSilent(f"there is no {self.dialect.submit_command} on {where}")
        if answer["code"]:
            raise QueueSilent(self.dialect.complaint(answer["err"]))
        return self.dialect.read_version(str(answer["out"]))

    async def list_nodes(self, link: Link) -> list[QueueNode]:
        return self.dialect.read_nodes(await self._printed(link, self.dialect.node_words()))

    async def accounts(self, link: Link, refused: Answer) -> str:
        """What it prints of the user's accounts, where a refusal has to do with them."""
        words = self.dialect.account_words(link.hello["user"], refused)
        return await self._printed_if_told(link, words)
