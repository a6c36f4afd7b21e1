"""What a team's server has besides its Engine."""

import os
from collections.abc import Callable

from towline.engine.engine import Engine
from towline.engine.parts import EngineParts
from towline.server.team.accounts import Accounts
from towline.server.team.audit import Audit
from towline.server.team.data.data import TeamData
from towline.server.team.data.on_nodes import DataOnNodes
from towline.server.team.nodes import Nodes
from towline.server.team.settings import TeamPaths, TeamSettings
from towline.server.team.tries import Tries
from towline.workspace.base import Places


class Team:
    """Accounts, settings, and how often who may try."""

    def __init__(self, engine: Engine, paths: TeamPaths, settings: TeamSettings) -> None:
        self._engine = engine
        self.paths = paths
        self.settings = settings
        self.accounts = Accounts(engine, settings)
        self.nodes = Nodes(engine, self.accounts.rows)
        self.accounts.on_rights_changed.append(self.nodes.tell)
        data = os.path.join(paths.home, settings.data) if settings.data else paths.data
        self.data = TeamData(data, self.accounts.rows, engine.store.nodes)
        self.data.prepare()
        self.on_nodes = DataOnNodes(self.data, self.nodes, self.accounts.rows)
        self.accounts.on_removed = self.data.retire
        self.audit = Audit(paths.audit_file)
        #: Wrong passwords for one name from one address, for one name, and from one address.
        self.guesses = (Tries(5, 12.0), Tries(30, 20.0), Tries(30, 4.0))
        #: Questions that need no password, from one address.
        self.questions = Tries(60, 1.0)

    def now(self) -> float:
        return self._engine.clock()

    def begin(self, parts: EngineParts, places: Callable[[], Places]) -> None:
        """Before anything is taken up again."""
        self.nodes.begin(parts, places)
        self.on_nodes.begin(parts)

    def count_guess(self, name: str, address: str) -> None:
        now = self.now()
        for tries, who in zip(self.guesses, (f"{name} {address}", name, address), strict=True):
            tries.take(who, now)

    def forgive(self, name: str, address: str) -> None:
        """The password was right: the tries before it do not count."""
        for tries, who in zip(self.guesses, (f"{name} {address}", name, address), strict=True):
            tries.give_back(who)

    def close(self) -> None:
        self.data.close()
        self.audit.close()
