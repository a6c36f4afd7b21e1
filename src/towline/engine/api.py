"""What the Engine offers to whoever is at its door: every call says who asks, first of all."""

from towline.engine.calls.batches import BatchCalls
from towline.engine.calls.contents import ContentCalls
from towline.engine.calls.events import EventCalls
from towline.engine.calls.files import FileCalls
from towline.engine.calls.jobs import JobCalls
from towline.engine.calls.places import PlaceCalls
from towline.engine.calls.services import ServiceCalls
from towline.engine.calls.team import TeamCalls
from towline.engine.parts import EngineParts


class EngineApi:
    """All that a route may call; `tests/server/test_principals.py` sees to that."""

    def __init__(self, parts: EngineParts) -> None:
        self.jobs = JobCalls(parts)
        self.batches = BatchCalls(parts)
        self.files = FileCalls(parts)
        self.contents = ContentCalls(parts)
        self.services = ServiceCalls(parts)
        self.events = EventCalls(parts)
        self.places = PlaceCalls(parts)
        self.team = TeamCalls(parts)
