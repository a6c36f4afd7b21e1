"""The backend for a Slurm: it queues the jobs itself, and is reached through its access node."""
