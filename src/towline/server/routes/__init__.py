"""Thin: each endpoint asks the Engine's API."""

from towline.server.endpoints import Endpoint
from towline.server.routes import (
    batches,
    clusters,
    engine,
    events,
    files,
    housekeeping,
    jobs,
    limits,
    services,
    snapshots,
    transfers,
    trust,
)

ENDPOINTS: list[Endpoint] = [
    endpoint
    for module in (
        engine,
        jobs,
        batches,
        events,
        files,
        transfers,
        clusters,
        snapshots,
        housekeeping,
        limits,
        services,
        trust,
    )
    for endpoint in module.ENDPOINTS
]
