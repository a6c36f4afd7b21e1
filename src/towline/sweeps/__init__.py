"""Sweeps: many runs of one program, several in one job where that is asked for."""
