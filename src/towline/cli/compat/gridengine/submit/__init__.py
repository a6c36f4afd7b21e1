"""What `tow qsub` reads, asks for and waits for."""
