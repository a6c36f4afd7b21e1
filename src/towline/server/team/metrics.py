"""Figures of a team's server, as Prometheus reads them."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from towline.engine.calls.places import Figures

_registry = CollectorRegistry()
_requests = Counter(
    "towline_requests", "Requests answered", ("method", "status"), registry=_registry
)
_seconds = Histogram(
    "towline_request_seconds", "How long an answer took", ("method",), registry=_registry
)
_jobs = Gauge("towline_jobs", "Jobs that have not ended", ("state",), registry=_registry)
_machines = Gauge("towline_machines", "Machines by connection", ("state",), registry=_registry)
_waiting = Gauge("towline_jobs_waiting", "Jobs that wait for a machine", registry=_registry)


def heard(method: str, status: int, seconds: float) -> None:
    """Count a request that was answered."""
    _requests.labels(method, status).inc()
    _seconds.labels(method).observe(seconds)


def figures(now: Figures) -> bytes:
    """All of them, as they are now."""
    for gauge, found in ((_jobs, Tally(now.states)), (_machines, Tally(now.connections))):
        gauge.clear()
        for state, count in found.items():
            gauge.labels(state).set(count)
    _waiting.set(now.waiting)
    return generate_latest(_registry)
