"""What runs the runs of a sweep where its jobs are; standard library only."""
