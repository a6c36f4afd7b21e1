"""What machines have, and what of it is free."""
