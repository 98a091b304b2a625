"""The administrator of commands on topics.

Invariant: it has the calls that every command on topics needs, and no more: to list topics is to
start quickly. Those that look into topics have one with more calls, in a module of its own.
"""

from ottla.client.admin.administration import Administration
from ottla.client.admin.topics import TopicCalls


class TopicAdmin(Administration, TopicCalls):
    """Asks and changes topics."""
