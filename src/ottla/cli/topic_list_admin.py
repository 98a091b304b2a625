"""Admin client that only lists topics, for a fast start."""

from ottla.client.admin.administration import Administration
from ottla.client.admin.topic_list import TopicListCalls


class ListAdmin(Administration, TopicListCalls):
    """Lists topics."""
