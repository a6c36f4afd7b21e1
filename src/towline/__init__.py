"""Towline: put one word in front of a command, and it runs on whatever compute you have."""

from towline.version import __version__

__all__ = ["__version__"]
