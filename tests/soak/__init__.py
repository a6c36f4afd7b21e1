"""Proof by repetition: jobs run here and on ssh hosts while whatever runs them is killed.

    make soak                  some minutes of it
    make soak MINUTES=180      as long as it is given
    make soak KILLS=2000       until so many kills were made

Every job must have run once, end as its command did, and have its log and results byte for byte.
"""
