"""When jobs may start on a machine: it has start tokens left, and is not set aside."""

from heapq import heappop, heappush

from msgspec.structs import replace

from towline.core.machines.host_state import HostState
from towline.core.machines.machine_index import MachineIndex
from towline.core.scheduling.start_tokens import StartTokens


class StartLimiter:
    """Opens and closes hosts to jobs, one start at a time."""

    def __init__(self, machines: MachineIndex) -> None:
        self.machines = machines
        self._tokens: dict[str, StartTokens] = {}
        #: (when its next start is in hand, machine); one that is not paced any more is skipped.
        self._due: list[tuple[float, str]] = []

    def started(self, host: HostState, job_id: int, now: float) -> bool:
        """A job was placed on a host; False if that set it aside again."""
        if host.machine is not None and host.machine.stagger_s:
            tokens = self._tokens_of(host) or self._tokens.setdefault(
                host.name, StartTokens(host.machine.stagger_s)
            )
            if not tokens.start(now):
                host.paced = True
                heappush(self._due, (tokens.due(), host.name))
                self.machines.opened_or_closed(host)
        if host.one_only is not None:
            host.aside, host.one_only = replace(host.one_only, tried_by=job_id), None
            self.machines.opened_or_closed(host)
            return False
        return True

    def ended(self, host: HostState, ran_s: float, well: bool, now: float) -> None:
        """A job that was placed on a host ended."""
        tokens = self._tokens_of(host)
        if tokens is not None:
            tokens.end(now, ran_s, well)
            if host.paced:
                self._look(host, tokens, now)

    def open_due(self, now: float) -> None:
        """Open the hosts whose next start is in hand."""
        while self._due and self._due[0][0] <= now:
            _, name = heappop(self._due)
            host = self.machines.hosts.get(name)
            if host is not None and host.paced:
                tokens = self._tokens_of(host)
                self._look(host, tokens, now)
                if host.paced and tokens is not None:
                    heappush(self._due, (max(tokens.due(), now + 1e-3), name))

    def wake_at(self) -> float | None:
        """When a paced start is due."""
        while self._due:
            host = self.machines.hosts.get(self._due[0][1])
            if host is not None and host.paced:
                return self._due[0][0]
            heappop(self._due)
        return None

    def forget(self, name: str) -> None:
        self._tokens.pop(name, None)

    def _tokens_of(self, host: HostState) -> StartTokens | None:
        tokens = self._tokens.get(host.name)
        if tokens is not None and host.machine is not None:
            tokens.stagger_s = host.machine.stagger_s
        return tokens

    def _look(self, host: HostState, tokens: StartTokens | None, now: float) -> None:
        if tokens is None or tokens.ready(now):
            host.paced = False
            self.machines.opened_or_closed(host)
