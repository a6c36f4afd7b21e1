"""The backend for a Grid Engine: it queues the jobs itself, and is reached by its head node."""
