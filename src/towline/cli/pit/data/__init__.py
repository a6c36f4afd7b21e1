"""The directory of a job: listed, read, copied, mounted."""
