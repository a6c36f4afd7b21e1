"""clusterduck's way to run a sweep, to compare with."""
