"""Admin client for topics.

It has only the calls that every command about topics needs, so that they start fast. Describing has
its own admin client.
"""

from ottla.client.admin.administration import Administration
from ottla.client.admin.topics import TopicCalls


class TopicAdmin(Administration, TopicCalls):
    """Describes and changes topics."""
