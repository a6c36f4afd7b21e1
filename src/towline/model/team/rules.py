"""Who works together behind one server: who is in which group, how much each may use."""

from msgspec import Struct, field


class UseLimits(Struct, frozen=True, omit_defaults=True):
    """The most that one user's jobs, or those of a group's members together, use; 0: no limit."""

    gpus: int = 0
    jobs: int = 0
    #: How long each job may run.
    time_s: float = 0.0
    #: Bytes in the data of this user, or of this group.
    data_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.gpus or self.jobs or self.time_s or self.data_bytes)


class Rulebook(Struct, frozen=True):
    """The rules of a team. Where there is one, owners take turns whatever priorities they set."""

    #: user -> groups.
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    user_limits: dict[str, UseLimits] = field(default_factory=dict)
    group_limits: dict[str, UseLimits] = field(default_factory=dict)

    def groups_of(self, owner: str) -> frozenset[str]:
        return self.members.get(owner, frozenset())

    def limits_of(self, owner: str) -> list[tuple[str, bool, UseLimits]]:
        """What holds for an owner: (whose limits, whether that is a group, the limits)."""
        found = [(owner, False, self.user_limits.get(owner, UseLimits()))]
        groups = sorted(self.groups_of(owner))
        found += [(group, True, self.group_limits.get(group, UseLimits())) for group in groups]
        return [one for one in found if one[2]]


class Share(Struct, frozen=True):
    """What an owner had used of the machines at some time, as far as it was not forgotten yet."""

    owner: str
    used: float
    at: float
