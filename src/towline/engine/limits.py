"""How many jobs of one kind some machines could run at a time, as they are now."""

import asyncio

from msgspec import Struct

from towline.api.places import Limits, MachineLimits
from towline.config.settings import MachineEntry
from towline.core.machines.capacity import seats_for
from towline.engine.ask import checked_folder
from towline.engine.desk import Desk
from towline.engine.engine import request_of
from towline.errors import HostError, UsageError
from towline.hosts.ssh import needs_person
from towline.model.events import StopAsked

#: How long a machine may take to answer.
_MEETING_S = 20.0


class LimitsAsk(Struct, forbid_unknown_fields=True):
    cwd: str
    machines: list[MachineEntry]
    #: What one of the jobs needs; one process.
    request: str = "[]"
    #: Make a cluster of each machine alone, too.
    each: bool = False


async def limits(desk: Desk, ask: LimitsAsk) -> Limits:
    """The cluster of these machines, and for each, in the order given, its name and who fits.

    `slots` has the GPUs of each of the jobs that could run there at a time.
    """
    if not ask.machines:
        raise UsageError("no machine is named")
    config = desk.intake.config(checked_folder(ask.cwd))
    # Asked first, so that a request that cannot be read costs no connection.
    need = request_of(ask.request).groups[0].need
    cluster = await desk.clusters.ad_hoc(ask.machines, config)
    entries = await desk.clusters.recognised(ask.machines, config)
    names = [desk.clusters.driver_of(entry).name for entry in entries]
    errors = await _meet(desk, names)
    # What the machines said is among the facts that this waits for.
    await desk.engine.tell(StopAsked(()))
    rooms, twins = desk.engine.core.scheduler.pool.rooms, desk.machines.twins
    machines: list[MachineLimits] = [
        {
            "name": name,
            "slots": [list(gpus) for gpus in seats_for(rooms.get(twins.get(name, name)), need)],
            "reason": errors[name].text if name in errors else "",
            "hint": errors[name].hint if name in errors else "",
        }
        for name in names
    ]
    if ask.each:
        for machine, entry in zip(machines, ask.machines, strict=True):
            machine["cluster"] = await desk.clusters.ad_hoc([entry], config)
    return {"cluster": cluster, "machines": machines}


async def _meet(desk: Desk, names: list[str]) -> dict[str, HostError]:
    """Wait for every machine; what went wrong, by machine, unless that is all of them."""
    drivers = [desk.driver(name) for name in dict.fromkeys(names)]
    tries = (driver.reach(_MEETING_S, patient=False) for driver in drivers)
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    errors = {
        driver.name: outcome
        for driver, outcome in zip(drivers, outcomes, strict=True)
        if isinstance(outcome, HostError)
    }
    if len(errors) == len(drivers):
        raise next((e for e in errors.values() if needs_person(e)), errors[drivers[0].name])
    return errors
