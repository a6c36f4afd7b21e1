"""Functions of a program, called on clusters: over warm workers, or one job per call."""
