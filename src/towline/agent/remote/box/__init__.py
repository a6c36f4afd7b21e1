"""Walls around a job: what bubblewrap is told, who keeps it, and the ways in that are left."""
