"""How many jobs of one kind some machines could run at a time, as they are now."""

import asyncio

from towline.api.places import MachineLimitList, MachineLimits
from towline.config.settings import MachineEntry
from towline.core.machines.capacity import seats_for
from towline.engine.engine import request_of
from towline.engine.parts import EngineParts
from towline.errors import HostError, UsageError
from towline.hosts.ssh import needs_person
from towline.model.events import StopAsked
from towline.workspace.base import Places

#: How long a machine may take to answer.
_MEETING_S = 20.0


async def limits(
    parts: EngineParts, places: Places, given: list[MachineEntry], request: str, each: bool
) -> MachineLimitList:
    """The cluster of these machines, and for each, in the order given, its name and who fits.

    `request` is what one of the jobs needs, with one process; `slots` has the GPUs of each of the
    jobs that could run there at a time. `each`: a cluster is made of each machine alone, too.
    """
    if not given:
        raise UsageError("no machine is named")
    config = places.config
    # Asked first, so that a request that cannot be read costs no connection.
    need = request_of(request).groups[0].need
    cluster = await parts.clusters.ad_hoc(given, config)
    entries = await parts.clusters.recognised(given, config)
    names = [parts.clusters.driver_of(entry).name for entry in entries]
    try:
        errors = await _meet(parts, names)
    except HostError as error:
        if not needs_person(error):
            parts.clusters.give_up_unused(cluster)
        raise
    # What the machines said is among the facts that this waits for.
    await parts.engine.tell(StopAsked(()))
    hosts, name_of = parts.engine.core.scheduler.machines.hosts, parts.fleet.counts_as
    machines: list[MachineLimits] = [
        {
            "name": name,
            "slots": [list(gpus) for gpus in seats_for(hosts.get(name_of(name)), need)],
            "reason": errors[name].text if name in errors else "",
            "hint": errors[name].hint if name in errors else "",
        }
        for name in names
    ]
    if each:
        for machine, entry in zip(machines, given, strict=True):
            machine["cluster"] = await parts.clusters.ad_hoc([entry], config)
    return {"cluster": cluster, "machines": machines}


async def _meet(parts: EngineParts, names: list[str]) -> dict[str, HostError]:
    """Wait for every machine; what went wrong, by machine, unless that is all of them."""
    drivers = [parts.fleet.machines[name] for name in dict.fromkeys(names)]
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
