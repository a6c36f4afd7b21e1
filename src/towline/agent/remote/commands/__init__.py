"""Start programs, find all that they started, end them."""
