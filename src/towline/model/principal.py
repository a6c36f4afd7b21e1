"""Who asks: every call of the Engine's API has one."""

from msgspec import Struct


class Principal(Struct, frozen=True):
    """A person, or a program that acts for one."""

    name: str
    groups: frozenset[str] = frozenset()
    #: May do everything, to everybody's jobs: on a laptop, whoever the Engine belongs to.
    administrator: bool = False

    @property
    def sees(self) -> str:
        """Whose jobs and batches it sees; empty: everybody's."""
        return "" if self.administrator else self.name

    def owns(self, owner: str) -> bool:
        """Whether what belongs to `owner` is this one's to look at and to change."""
        return self.administrator or self.name == owner
