"""The settings of brokers, topics and clients: one row each, read by everything that needs them.

Invariant: a name, its type, default, range and meaning are declared once. Parsing, messages,
DescribeConfigs and the reference pages read that row.
"""

from ottla.settings.config_types import Secret
from ottla.settings.invalid_settings import InvalidSettings, Origin, Problem

__all__ = ["InvalidSettings", "Origin", "Problem", "Secret"]
