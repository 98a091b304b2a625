"""DeleteTopics: by name or by topic id."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.topics import Topics
from ottla.controller.propagation import Propagation, Updates
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.settings.broker import DELETE_TOPIC_ENABLE
from ottla.transport.connection import Connection, DeferredResponse


class DeleteTopicsHandler:
    """Deletes topics."""

    def __init__(
        self,
        *,
        settings: EffectiveConfig,
        metadata_cache: MetadataCache,
        topics: Topics,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._topics = topics
        self._scheduler = scheduler

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Delete topics with all their records."""
        message = request.message
        assert isinstance(message, DeleteTopicsRequest)
        asked = [
            *message.topics,
            *(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in message.topic_names),
        ]
        propagation = self._topics.propagation(message.timeout_ms)
        return DeferredResponse(self._answer(asked, propagation))

    async def _answer(self, asked: list[DeleteTopicState], propagation: Propagation) -> Response:
        by_topic: dict[str | Uuid, list[DeleteTopicState]] = {}
        turns = self._scheduler.new_loop()
        async for one in turns.over(asked):
            by_topic.setdefault(self._identity(one), []).append(one)
        results: list[DeletableTopicResult] = []
        deleted: list[tuple[DeletableTopicResult, Updates]] = []

        async def delete_all() -> None:
            async for same in turns.over(by_topic.values()):
                if len(same) > 1:
                    results.append(_twice(same))
                    continue
                result = await self._delete(same[0], propagation)
                results.append(result)
                if not result.error_code:
                    deleted.append((result, propagation.late))

        await propagation.carry_out(delete_all())
        for result, updates in deleted:
            what = f"topic {result.name} is deleted"
            if (error := await propagation.timed_out(what, updates)) is not None:
                result.error_code, result.error_message = int(error.code), error.message
        return DeleteTopicsResponse(throttle_time_ms=0, responses=results)

    def _identity(self, asked: DeleteTopicState) -> str | Uuid:
        """Return the same key for both ways to name a topic."""
        if asked.name is not None:
            return asked.name
        found = self._metadata_cache.image.topic_of_id(asked.topic_id)
        return asked.topic_id if found is None else found.name

    async def _delete(
        self, asked: DeleteTopicState, propagation: Propagation
    ) -> DeletableTopicResult:
        name, topic_id = asked.name, asked.topic_id
        try:
            if not self._settings.broker[DELETE_TOPIC_ENABLE]:
                raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED)
            if (name is None) == (topic_id == ZERO_UUID):
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, "Give either the topic's name or its id."
                )
            wanted = None if name is not None else topic_id
            found = self._metadata_cache.topic(name or "", wanted)
            name, topic_id = found.name, found.id
            await self._topics.delete(found.name, wanted, propagation)
        except RequestError as error:
            return DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=int(error.code),
                error_message=error.message or error.code.text,
            )
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)


def _twice(same: list[DeleteTopicState]) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=next((one.name for one in same if one.name is not None), None),
        topic_id=next((one.topic_id for one in same if one.topic_id != ZERO_UUID), ZERO_UUID),
        error_code=int(ErrorCode.INVALID_REQUEST),
        error_message="The topic is given more than once.",
    )
