"""Machines as people see them: what is free, what fits, what is wrong."""
