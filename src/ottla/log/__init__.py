"""The log of a partition: its files, what is in them, and what may be written to them.

Invariant: the records are the truth. Indexes, snapshots and checkpoints only save the reading of
them again, and whatever is damaged is made anew from the records.
"""
