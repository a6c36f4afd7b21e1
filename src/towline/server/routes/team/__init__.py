"""What only a team's server serves."""

from towline.server.endpoints import Endpoint
from towline.server.rights import HERE
from towline.server.routes import ENDPOINTS
from towline.server.routes.team import (
    accounts,
    contents,
    data,
    groups,
    hello,
    made,
    nodes,
    status,
    tokens,
)

#: All that a team's server serves.
TEAM_ENDPOINTS: list[Endpoint] = [
    *(one for one in ENDPOINTS if (one.method, one.path) not in HERE),
    *(
        endpoint
        for module in (hello, accounts, tokens, groups, nodes, contents, data, made, status)
        for endpoint in module.ENDPOINTS
    ),
]
