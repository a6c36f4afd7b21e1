"""The directory of a job, and the data of a team: listed, read, copied, changed, mounted."""
