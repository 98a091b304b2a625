"""The list of topics, from Metadata.

It is a module of its own because listing is the most frequent call, and its import should be fast.
"""

from typing import Final, NamedTuple

from ottla.client.admin.calls import Calls
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

NOT_CREATING: Final = 4
"""The first version of Metadata that does not create topics."""


class ListedTopic(NamedTuple):
    """An existing topic."""

    name: str
    id: Uuid | None
    partitions: int
    is_internal: bool


class TopicListCalls(Calls):
    """The call that lists topics."""

    async def list_topics(
        self, *, include_internal: bool = False, timeout_s: float | None = None
    ) -> dict[str, ListedTopic]:
        """Return all topics that the caller may see."""
        return await self._asking.one(
            self._asking.to_any,
            lambda _: MetadataRequest(topics=None, allow_auto_topic_creation=False),
            MetadataResponse,
            lambda answer: listed(answer, include_internal=include_internal),
            timeout_s,
            since=NOT_CREATING,
        )


def listed(answer: MetadataResponse, *, include_internal: bool) -> dict[str, ListedTopic]:
    """Return all topics by name."""
    return {
        topic.name: ListedTopic(
            topic.name, topic_id(topic.topic_id), len(topic.partitions), topic.is_internal
        )
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
        if topic.name is not None and (include_internal or not topic.is_internal)
    }


def topic_id(told: Uuid) -> Uuid | None:
    """Return a topic id; None for the zero id."""
    return None if told == ZERO_UUID else told
