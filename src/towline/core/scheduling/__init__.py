"""Which job is next, and where it goes."""
