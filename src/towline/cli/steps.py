"""Steps of a check, as they are shown."""

from __future__ import annotations

from towline.cli.terminal import paint


def mark(ok: bool | None) -> str:
    """✓ well, ✗ wrong, · neither."""
    if ok is None:
        return paint("·", "dim", 1)
    return paint("✓", "green", 1) if ok else paint("✗", "red", 1)
