"""`pit set user:anna quota=10G`: how much there may be in the data of a user or a group."""

from __future__ import annotations

from towline.cli.pit.failures import Failed
from towline.errors import UsageError
from towline.model.units import parse_memory_mb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.pit.session import PitSession
    from towline.cli.pit.typed.names import Entity

_KINDS = {"user": "users", "group": "groups"}


def set_quota(session: PitSession, which: Entity, typed: str) -> None:
    """The other limits stay as they are; `none` is no limit."""
    kind = _KINDS[which.kind]
    limits = session.call("GET", "/v1/team/limits")[kind].get(which.name, {})
    body = {**limits, "data_bytes": quota_bytes(typed)}
    session.call("PUT", f"/v1/team/limits/{kind}/{which.name}", body)


def quota_bytes(typed: str) -> int:
    if typed.lower() in ("none", "0", ""):
        return 0
    try:
        return parse_memory_mb(typed) << 20
    except UsageError:
        raise Failed(f'"{typed}" is no size', "write it like quota=10G, or quota=none") from None
