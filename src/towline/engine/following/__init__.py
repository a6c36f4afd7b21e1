"""What a job prints and does, as a stream."""
