"""What runs the runs of a sweep where its jobs are: it travels there, so it imports no Towline."""
