"""`tow why`: why a job waits."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import printable, say, say_json
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import silence
from towline.client.names import meant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

EXAMPLES = """
tow why 12
tow why last --json
"""


def parser() -> Parser:
    parser = Parser(
        "why", "[--json] JOB", "Say why a job waits: the reason, machine by machine.", EXAMPLES
    )
    parser.add_job(or_batch=True)
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    found = meant(session, options.job)
    if found.batch:
        answer = _of_batch(session, found.batch)
    else:
        answer = session.call("GET", f"/v1/jobs/{found.job}/why")
    if options.json:
        say_json(answer)
        return 0
    text = str(answer["text"]) + silence(answer)
    say("\n".join(map(printable, text.splitlines())))
    for line in _in_queue(answer):
        say(line)
    machines = answer.get("machines") or []
    if machines:
        say("")
        rows = [[str(entry["machine"]), str(entry["reason"])] for entry in machines]
        show_table(["MACHINE", "REASON"], rows)
    return 0


def _in_queue(answer: dict[str, Any]) -> list[str]:
    """What the queue of its cluster says besides: its number there, its place, its prospects."""
    queue = answer.get("queue") or {}
    if not queue.get("number"):
        return []
    import time

    from towline.cli.terminal.queue_wording import prospects, queue_details, queue_name, requeued
    from towline.model.units import format_duration

    now = time.time()
    kind = queue_name(answer).rpartition(" ")[0]
    lines = [f"{kind} calls it {printable(queue_details(answer))}"]
    if queue.get("since"):
        lines.append(f"it has waited for {format_duration(max(0.0, now - queue['since']))}")
    return [*lines, *filter(None, [requeued(queue, now)]), *prospects(queue, now)]


def _of_batch(session: Session, name: str) -> dict[str, Any]:
    """Why those of its jobs wait that wait, told of the first of them."""
    from towline.cli.terminal.batch_wording import counts_text, state_of
    from towline.client.batches import jobs_of

    answer = jobs_of(session, name, state="queued", limit=1)
    view = answer["batch"]
    if not answer["jobs"]:
        return {"text": f"batch {name} is {state_of(view)}: {counts_text(view)}", "machines": []}
    job = answer["jobs"][0]
    told: dict[str, Any] = session.call("GET", f"/v1/jobs/{job['id']}/why")
    return {**told, "text": f"line {job['line']}, job {job['id']}: {told['text']}"}
