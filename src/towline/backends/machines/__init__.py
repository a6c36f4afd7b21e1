"""Machines without a queue of their own: this one, and those reached by ssh."""
