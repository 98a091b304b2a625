"""The log of a partition: its files, their formats, and the operations on them.

Invariant: the records files are the truth. Indexes, snapshots and checkpoints only save time;
damaged ones are rebuilt from the records.
"""
