"""The log cleaner: which part of a log is dirty, and how it is compacted."""
