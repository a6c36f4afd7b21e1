"""Many jobs that were submitted together."""
