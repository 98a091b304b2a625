"""Resolves topic ids of an assignment to names.

Invariant: a name that the metadata lack is requested and then kept fresh. A topic id without a name
is left out: the topic may be new or deleted.
"""

from collections.abc import Iterable

from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import RequestError
from ottla.ids import Uuid
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.transport.backoff import Backoff

_TRIES_MAX = 3


class TopicNames:
    """Looks up topic names."""

    def __init__(
        self, metadata: Metadata, clock: Clock, backoff: Backoff, request_timeout_s: float
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._backoff = backoff
        self._request_timeout_s = request_timeout_s

    async def of(self, topics: Iterable[Uuid]) -> dict[Uuid, str]:
        """Return the names of the topic ids that have one."""
        topics = [*topics]
        found: dict[Uuid, str] = {}
        for tries in range(_TRIES_MAX):
            names = self._metadata.view.names
            found |= {topic: names[topic] for topic in topics if topic in names}
            unknown = [topic for topic in topics if topic not in found]
            if not unknown:
                break
            await self._clock.sleep(self._backoff.pause_s(tries))
            found |= await self._ask(unknown)
        for name in found.values():
            self._metadata.want(name)
        return found

    async def _ask(self, topics: Iterable[Uuid]) -> dict[Uuid, str]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic, name=None) for topic in topics],
            allow_auto_topic_creation=False,
        )
        try:
            channel = await self._metadata.any_channel()
            answer = await channel.ask(request, MetadataResponse, self._request_timeout_s)
        except RequestError:
            return {}
        return {
            topic.topic_id: topic.name
            for topic in answer.topics
            if not topic.error_code and topic.name is not None
        }
