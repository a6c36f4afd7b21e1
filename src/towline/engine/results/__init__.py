"""What jobs made and printed comes home."""
