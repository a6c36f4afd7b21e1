"""Hydra's launcher for Towline: `hydra/launcher=towline`."""
