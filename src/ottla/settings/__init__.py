"""The settings of brokers, topics and clients: one row each, read by everything that needs them.

Invariant: a name, its type, default, range and meaning are declared once. Parsing, messages,
DescribeConfigs and the reference pages read that row.
"""

from ottla.settings.problems import InvalidSettings, Origin, Problem
from ottla.settings.values import Secret

__all__ = ["InvalidSettings", "Origin", "Problem", "Secret"]
