"""The administrator of commands on topics."""

from ottla.client.admin.administration import Administration
from ottla.client.admin.topics import TopicCalls


class TopicAdmin(Administration, TopicCalls):
    """Asks and changes topics."""
