"""One measured number beside its target."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What was measured, and the bound that it must keep."""

    what: str
    value: float
    unit: str
    above: float | None = None
    below: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value keeps its bounds."""
        enough = self.above is None or self.value >= self.above
        return enough and (self.below is None or self.value <= self.below)

    @property
    def target(self) -> str:
        if self.above is not None:
            return f">= {self.above:.2f} {self.unit}"
        return f"<= {self.below:.2f} {self.unit}" if self.below is not None else ""

    def __str__(self) -> str:
        measured = f"{self.value:.2f} {self.unit}"
        outcome = "holds" if self.holds else "MISSED"
        return f"{self.what:44} {measured:>12} {self.target:>14}  {outcome}"
