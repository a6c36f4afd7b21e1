"""The agent: `remote/` runs on the machines; `link.py` ships it there and talks to it."""
