"""Where Spark looks for data sources by itself: `format("ottla")` without a word before it.

Invariant: its batches take no filters. Spark refuses a reader that does in a session which was not
told to push them down; `ottla.pipeline.register` tells it.
"""

from ottla.pipeline.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
