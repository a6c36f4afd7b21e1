"""The jobs that this agent knows of, and their supervisors."""
