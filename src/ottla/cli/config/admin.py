"""The administrator of commands on settings."""

from ottla.client.admin.administration import Administration
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.quotas import QuotaCalls


class ConfigAdmin(Administration, ConfigCalls, QuotaCalls):
    """Asks and changes settings and quotas."""
