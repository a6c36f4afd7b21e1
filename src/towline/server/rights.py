"""Who may call what: one table for every endpoint, and an endpoint that is not in it is an error.

Of jobs and batches that are others', only an administrator learns: whatever names one is looked up
for whoever asks (engine/api.py).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from towline.errors import Forbidden, SignInWanted
from towline.model.principal import NOBODY, Principal


class Right(StrEnum):
    """What an endpoint takes."""

    #: Not even to say who one is.
    OPEN = "open"
    #: Look at what concerns everybody: clusters, machines, the Engine.
    LOOK = "look"
    #: Submit jobs, and do with one's own whatever one likes.
    OWN = "own"
    #: Change what concerns everybody, or what is the Engine owner's own.
    ADMINISTER = "administer"


#: Method and path of every endpoint.
RIGHTS: dict[tuple[str, str], Right] = {
    ("GET", "/v1/engine"): Right.LOOK,
    ("POST", "/v1/engine/retire"): Right.ADMINISTER,
    ("POST", "/v1/run"): Right.OWN,
    ("POST", "/v1/jobs"): Right.OWN,
    ("POST", "/v1/plan"): Right.OWN,
    ("GET", "/v1/jobs"): Right.OWN,
    ("GET", "/v1/named"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/why"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/log"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/samples"): Right.OWN,
    ("POST", "/v1/jobs/stop"): Right.OWN,
    ("POST", "/v1/jobs/retry"): Right.OWN,
    ("POST", "/v1/jobs/hold"): Right.OWN,
    ("POST", "/v1/jobs/release"): Right.OWN,
    ("POST", "/v1/jobs/remove"): Right.OWN,
    ("POST", "/v1/batches"): Right.OWN,
    ("GET", "/v1/batches"): Right.OWN,
    ("GET", "/v1/batches/{name:str}"): Right.OWN,
    ("GET", "/v1/batches/{name:str}/follow"): Right.OWN,
    ("POST", "/v1/batches/{name:str}/stop"): Right.OWN,
    ("POST", "/v1/batches/{name:str}/retry"): Right.OWN,
    ("POST", "/v1/batches/{name:str}/more"): Right.OWN,
    ("POST", "/v1/batches/{name:str}/results"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/files"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/walk"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/stat"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/file"): Right.OWN,
    ("PUT", "/v1/jobs/{job_id:int}/file"): Right.OWN,
    ("POST", "/v1/jobs/{job_id:int}/fetch"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/gather"): Right.OWN,
    ("POST", "/v1/jobs/{job_id:int}/store"): Right.OWN,
    ("POST", "/v1/jobs/{job_id:int}/exec"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/results"): Right.OWN,
    ("POST", "/v1/jobs/{job_id:int}/results"): Right.OWN,
    ("POST", "/v1/jobs/{job_id:int}/forward"): Right.OWN,
    ("POST", "/v1/jobs/{job_id:int}/connect"): Right.OWN,
    ("GET", "/v1/forwards"): Right.OWN,
    ("DELETE", "/v1/forwards/{local:int}"): Right.OWN,
    ("GET", "/v1/services"): Right.OWN,
    ("GET", "/v1/events"): Right.OWN,
    ("GET", "/v1/clusters"): Right.LOOK,
    ("GET", "/v1/machines"): Right.LOOK,
    ("GET", "/v1/disk"): Right.LOOK,
    ("GET", "/v1/doctor"): Right.LOOK,
    # Whatever follows is the Engine owner's: the files of this machine, its configuration, and
    # logins to its machines.
    ("GET", "/v1/jobs/{job_id:int}/diff"): Right.ADMINISTER,
    ("POST", "/v1/jobs/{job_id:int}/checkout"): Right.ADMINISTER,
    ("GET", "/v1/snapshots"): Right.ADMINISTER,
    ("POST", "/v1/snapshots/prune"): Right.ADMINISTER,
    ("GET", "/v1/trust"): Right.ADMINISTER,
    ("POST", "/v1/trust"): Right.ADMINISTER,
    ("POST", "/v1/trust/revoke"): Right.ADMINISTER,
    ("POST", "/v1/clusters"): Right.ADMINISTER,
    ("POST", "/v1/clusters/default"): Right.ADMINISTER,
    ("POST", "/v1/clusters/behind"): Right.ADMINISTER,
    ("DELETE", "/v1/clusters/{name:str}"): Right.ADMINISTER,
    ("GET", "/v1/machines/login"): Right.ADMINISTER,
    ("POST", "/v1/machines/redial"): Right.ADMINISTER,
    ("POST", "/v1/limits"): Right.ADMINISTER,
    ("POST", "/v1/gc"): Right.ADMINISTER,
}

#: Only where the Engine is its user's own: they touch folders, configuration, ports or logins of
#: the machine that it is on.
HERE = frozenset(
    {
        ("POST", "/v1/engine/retire"),
        ("POST", "/v1/jobs/{job_id:int}/forward"),
        ("GET", "/v1/forwards"),
        ("DELETE", "/v1/forwards/{local:int}"),
        ("GET", "/v1/jobs/{job_id:int}/diff"),
        ("POST", "/v1/jobs/{job_id:int}/checkout"),
        ("GET", "/v1/snapshots"),
        ("POST", "/v1/snapshots/prune"),
        ("GET", "/v1/trust"),
        ("POST", "/v1/trust"),
        ("POST", "/v1/trust/revoke"),
        ("POST", "/v1/clusters"),
        ("POST", "/v1/clusters/default"),
        ("POST", "/v1/clusters/behind"),
        ("DELETE", "/v1/clusters/{name:str}"),
        ("GET", "/v1/machines/login"),
        ("POST", "/v1/limits"),
    }
)

#: Only on a team's server; the same there as the table above.
TEAM: dict[tuple[str, str], Right] = {
    ("GET", "/healthz"): Right.OPEN,
    ("GET", "/metrics"): Right.LOOK,
    ("GET", "/v1/hello"): Right.OPEN,
    ("GET", "/v1/accounts/{name:str}/exists"): Right.OPEN,
    ("POST", "/v1/accounts"): Right.OPEN,
    ("POST", "/v1/tokens"): Right.OPEN,
    ("GET", "/v1/tokens"): Right.OWN,
    ("DELETE", "/v1/tokens/{token:str}"): Right.OWN,
    ("GET", "/v1/accounts"): Right.ADMINISTER,
    ("GET", "/v1/accounts/{name:str}"): Right.OWN,
    ("PATCH", "/v1/accounts/{name:str}"): Right.OWN,
    ("DELETE", "/v1/accounts/{name:str}"): Right.OWN,
    ("PUT", "/v1/accounts/{name:str}/groups/{group:str}"): Right.ADMINISTER,
    ("DELETE", "/v1/accounts/{name:str}/groups/{group:str}"): Right.ADMINISTER,
    ("GET", "/v1/groups"): Right.LOOK,
    ("GET", "/v1/groups/{group:str}"): Right.LOOK,
    ("PUT", "/v1/groups/{group:str}"): Right.ADMINISTER,
    ("PATCH", "/v1/groups/{group:str}"): Right.ADMINISTER,
    ("DELETE", "/v1/groups/{group:str}"): Right.ADMINISTER,
    ("GET", "/v1/nodes"): Right.LOOK,
    ("GET", "/v1/nodes/{node:str}"): Right.LOOK,
    ("PUT", "/v1/nodes/{node:str}"): Right.ADMINISTER,
    ("PATCH", "/v1/nodes/{node:str}"): Right.ADMINISTER,
    ("DELETE", "/v1/nodes/{node:str}"): Right.ADMINISTER,
    ("PUT", "/v1/nodes/{node:str}/groups/{group:str}"): Right.ADMINISTER,
    ("DELETE", "/v1/nodes/{node:str}/groups/{group:str}"): Right.ADMINISTER,
    ("PUT", "/v1/nodes/{node:str}/resources/{index:int}/groups/{group:str}"): Right.ADMINISTER,
    ("DELETE", "/v1/nodes/{node:str}/resources/{index:int}/groups/{group:str}"): Right.ADMINISTER,
    ("GET", "/v1/aliases"): Right.LOOK,
    ("GET", "/v1/aliases/{alias:str}"): Right.LOOK,
    ("PUT", "/v1/aliases/{alias:str}"): Right.ADMINISTER,
    ("PATCH", "/v1/aliases/{alias:str}"): Right.ADMINISTER,
    ("DELETE", "/v1/aliases/{alias:str}"): Right.ADMINISTER,
    ("GET", "/v1/team/limits"): Right.LOOK,
    ("PUT", "/v1/team/limits/{kind:str}/{name:str}"): Right.ADMINISTER,
    ("GET", "/v1/team/status"): Right.LOOK,
    ("GET", "/v1/team/jobs"): Right.LOOK,
    ("GET", "/v1/team/jobs/{job_id:int}"): Right.LOOK,
    ("PUT", "/v1/jobs/{job_id:int}/groups/{group:str}"): Right.OWN,
    ("DELETE", "/v1/jobs/{job_id:int}/groups/{group:str}"): Right.OWN,
    ("POST", "/v1/contents/missing"): Right.OWN,
    ("POST", "/v1/contents"): Right.OWN,
    ("POST", "/v1/snapshots"): Right.OWN,
    # Whose data it is decides model/team/data.py.
    ("GET", "/v1/data"): Right.OWN,
    ("GET", "/v1/data/{domain:str}/files"): Right.OWN,
    ("GET", "/v1/data/{domain:str}/stat"): Right.OWN,
    ("GET", "/v1/data/{domain:str}/file"): Right.OWN,
    ("POST", "/v1/data/{domain:str}/file"): Right.OWN,
    ("PUT", "/v1/data/{domain:str}/file"): Right.OWN,
    ("PUT", "/v1/data/{domain:str}/folder"): Right.OWN,
    ("POST", "/v1/data/{domain:str}/move"): Right.OWN,
    ("DELETE", "/v1/data/{domain:str}/file"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/made"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/made/file"): Right.OWN,
    ("GET", "/v1/jobs/{job_id:int}/made/contents"): Right.OWN,
}
#: All that a team's server serves.
TEAM_RIGHTS = {at: right for at, right in RIGHTS.items() if at not in HERE} | TEAM


def check(who: Principal, right: Right) -> None:
    """Refuse what somebody may not do."""
    if who == NOBODY and right is not Right.OPEN:
        raise SignInWanted("sign in first: a token is wanted")
    if right is Right.ADMINISTER and not who.administrator:
        raise Forbidden(f"{who.name} is not an administrator here", hint="ask one")


def check_complete(
    served: Iterable[tuple[str, str]], rights: Mapping[tuple[str, str], Right] = RIGHTS
) -> None:
    """Refuse to serve what nobody thought about."""
    served = set(served)
    if without := sorted(served - rights.keys()):
        raise ValueError(f"without an entry in server/rights.py: {without}")
    if gone := sorted(rights.keys() - served):
        raise ValueError(f"in server/rights.py, and served nowhere: {gone}")
