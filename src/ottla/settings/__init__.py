"""The settings of brokers, topics and clients, one row each.

Name, type, default, valid values and documentation of a setting are declared once. Parsing, error
messages, DescribeConfigs and the reference pages read that row.
"""

from ottla.settings.config_types import Secret
from ottla.settings.invalid_settings import InvalidSettings, Origin, Problem

__all__ = ["InvalidSettings", "Origin", "Problem", "Secret"]
