"""What is written down about a job, and what that tells."""
