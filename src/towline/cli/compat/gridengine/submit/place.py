"""Where `-q` and `-l hostname` send a job."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase

from towline.cli.compat.gridengine.submit.refusals import rejected
from towline.client.submission import this_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.client.session import Session


class Place:
    """A cluster, and the queues of it that were named: `QUEUE`, `QUEUE@HOST`, or several."""

    def __init__(self, session: Session, typed: str) -> None:
        from towline.client.transport import with_query

        answer = session.call("GET", with_query("/v1/clusters", cwd=this_folder()))
        clusters = {one["name"]: one for one in answer["clusters"]}
        named = [one for one in typed.split(",") if one]
        first, _, host = named[0].partition("@") if named else ("", "", "")
        default = next((name for name, one in clusters.items() if one["default"]), "local")
        self.cluster = first if first in clusters else default
        kind = str((clusters.get(self.cluster) or {}).get("kind") or "")
        #: This very machine, where a queue's name means nothing.
        self.is_here = self.cluster == "local" and kind == "machines"
        self.kind = "" if self.is_here else kind
        #: As a job is told it.
        self.name = first or self.cluster
        #: What is asked of the cluster's own queue. A cluster is none of its queues, but any.
        self.queues = named
        if named and first == self.cluster:
            self.queues = [f"*@{host}", *named[1:]] if host else named[1:]
        if self.kind == "machines" and self.queues:
            wrong = named[0] if host or first != self.cluster else named[1]
            raise rejected(f'Job was rejected because job requests unknown queue "{wrong}"')


def hosts_named(place: Place, resources: str) -> list[str]:
    """By `-q QUEUE@HOST` and by `-l hostname=HOST`."""
    asked = [part.partition("=") for part in resources.split(",")]
    hosts = [one.partition("@")[2] for one in place.queues if not place.is_here]
    hosts += [value for name, _, value in asked if name in ("h", "hostname")]
    return list(dict.fromkeys(filter(None, hosts)))


def check_hosts(place: Place, resources: str) -> None:
    """Only queues have hosts that can be chosen, and only a Grid Engine takes patterns of them."""
    if place.kind == "gridengine":
        return
    this = os.uname().nodename
    for host in hosts_named(place, resources):
        is_this = place.is_here and (fnmatchcase(this, host) or host == "localhost")
        if not is_this and place.kind in ("", "machines"):
            raise rejected(f'can\'t resolve hostname "{host}"')
        if place.kind == "slurm" and re.search(r"[*?\[\]]", host):
            raise rejected(f'a Slurm takes no patterns of hosts: "{host}"')
