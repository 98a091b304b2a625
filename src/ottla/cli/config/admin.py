"""Admin client for settings and quotas."""

from ottla.client.admin.administration import Administration
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.quotas import QuotaCalls


class ConfigAdmin(Administration, ConfigCalls, QuotaCalls):
    """Describes and changes settings and quotas."""
