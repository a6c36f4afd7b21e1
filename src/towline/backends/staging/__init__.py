"""Bring snapshots to machines: only what they lack travels."""
