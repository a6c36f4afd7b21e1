"""An Engine with batches, to play with."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from engine.bench import EngineBench
from towline.engine.batches.batches import Batches
from towline.model.batch import Batch, Line
from towline.model.job import Ending, JobSpec
from towline.model.principal import Principal

#: A few more jobs than CPUs run at a time.
AT_ONCE = 6
ME = Principal("me")
BASE = JobSpec(argv=(), cluster="lab", owner="me", results=False)


def lines(count: int) -> list[Line]:
    return [Line(argv=("echo", str(n)), number=n, title=f"echo {n}") for n in range(1, count + 1)]


class Bench(EngineBench):
    """An Engine with batches."""

    def equip(self) -> None:
        self.batches = Batches(self.engine)

    async def recover(self) -> None:
        await super().recover()
        self.batches.recover()

    def counts(self, name: str) -> Counter[str]:
        return +Counter(self.batches.view(self.batch(name))["counts"])

    def batch(self, name: str) -> Batch:
        return self.batches.called(ME, name)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    def end_all(self, ending: Callable[[int], Ending] = lambda job: Ending(code=0)) -> int:
        """End what runs; how many they were."""
        running = list(self.backend.running)
        for process in running:
            self.backend.end(*process, ending=ending(process[0]))
        return len(running)

    async def play_out(
        self, batch: Batch, ending: Callable[[int], Ending] = lambda job: Ending(code=0)
    ) -> None:
        """End whatever runs until the batch is over."""
        while batch.key in self.batches.active:
            self.end_all(ending)
            await asyncio.sleep(0.001)


Scenario = Callable[[Bench], Awaitable[None]]
Play = Callable[[Scenario], None]
