"""Workers are submitted together, as a batch: the folder is read once, a queue gets one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from towline.client.asks import ask_for
from towline.client.batches import jobs_of
from towline.client.job import Job
from towline.client.submission import new_key
from towline.functions.payload import payload, program_for_calls
from towline.functions.workers import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from towline.client.asks import Options
    from towline.functions.executor import Executor


def start_workers(
    owner: Executor, folder: Path, options: dict[str, Any], python: str, count: int
) -> list[Worker]:
    """Submit so many workers, each with a key of its own."""
    session = owner.session
    with payload(folder, {}, program_for_calls()) as sent:
        numbers = range(1, count + 1)
        lines = [
            {
                "argv": sent.command("towline_remote.worker", python, number),
                "title": f"worker {number}",
            }
            for number in numbers
        ]
        base = ask_for(["true"], folder, cast("Options", sent.added_to(options)))
        name = str(base.get("title") or "workers")
        body = {"base": base, "lines": lines, "name": name}
        batch = session.once("/v1/batches", body, new_key())["batch"]
    found = sorted(jobs_of(session, batch["name"])["jobs"], key=lambda job: int(job["id"]))
    return [
        Worker(owner, Job(session, facts), sent, number)
        for number, facts in zip(numbers, found, strict=True)
    ]
