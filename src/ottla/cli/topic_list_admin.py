"""The administrator that lists topics, and no more: what people ask for most starts soonest."""

from ottla.client.admin.administration import Administration
from ottla.client.admin.topic_list import TopicListCalls


class ListAdmin(Administration, TopicListCalls):
    """Lists topics."""
