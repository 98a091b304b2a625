"""The module that Spark imports to find `format("ottla")` without a registration.

Invariant: its reader takes no filters. Spark refuses a reader with filters unless the session
enables filter pushdown, which `ottla.pipeline.register` can do.
"""

from ottla.pipeline.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
