"""Every decision of the product: facts in, orders out. No I/O, no clock, no randomness."""
