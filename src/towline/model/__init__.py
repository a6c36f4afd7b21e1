"""What things are: plain frozen structs, no I/O, no clock, no randomness."""
