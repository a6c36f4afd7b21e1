"""The data of a team in a terminal: domains in the place of jobs."""
