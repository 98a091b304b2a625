"""DeleteTopics: by name or by topic id."""

from collections.abc import Sequence

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.topics import Topics, UnwantedTopic
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
        unwanted: list[tuple[UnwantedTopic, DeletableTopicResult]] = []
        deleted: list[tuple[DeletableTopicResult, Updates]] = []
        async for same in turns.over(by_topic.values()):
            result = _result(same[0]) if len(same) == 1 else _twice(same)
            results.append(result)
            if len(same) == 1:
                try:
                    unwanted.append((self._unwanted(same[0], result), result))
                except RequestError as error:
                    _refuse(result, error)

        async def delete_all() -> None:
            left = unwanted
            while left:
                outcomes = await self._delete([one for one, _ in left], propagation)
                for (_, result), error in zip(left, outcomes, strict=False):
                    if error is None:
                        deleted.append((result, propagation.late))
                    else:
                        _refuse(result, error)
                left = left[len(outcomes) :]

        await propagation.carry_out(delete_all())
        for result, updates in deleted:
            what = f"topic {result.name} is deleted"
            if (error := await propagation.timed_out(what, updates)) is not None:
                _refuse(result, error)
        return DeleteTopicsResponse(throttle_time_ms=0, responses=results)

    async def _delete(
        self, unwanted: Sequence[UnwantedTopic], propagation: Propagation
    ) -> Sequence[RequestError | None]:
        """Delete the first of these topics; a refusal as a whole is the outcome of all."""
        try:
            return await self._topics.delete_some(unwanted, propagation)
        except RequestError as error:
            return [error] * len(unwanted)

    def _unwanted(self, asked: DeleteTopicState, result: DeletableTopicResult) -> UnwantedTopic:
        """Look a topic up, and complete its result."""
        if not self._settings.broker[DELETE_TOPIC_ENABLE]:
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED)
        name, topic_id = asked.name, asked.topic_id
        if (name is None) == (topic_id == ZERO_UUID):
            raise RequestError(ErrorCode.INVALID_REQUEST, "Give either the topic's name or its id.")
        wanted = None if name is not None else topic_id
        found = self._metadata_cache.topic(name or "", wanted)
        result.name, result.topic_id = found.name, found.id
        return UnwantedTopic(found.name, wanted)

    def _identity(self, asked: DeleteTopicState) -> str | Uuid:
        """Return the same key for both ways to name a topic."""
        if asked.name is not None:
            return asked.name
        found = self._metadata_cache.image.topic_of_id(asked.topic_id)
        return asked.topic_id if found is None else found.name


def _result(asked: DeleteTopicState) -> DeletableTopicResult:
    return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=0)


def _refuse(result: DeletableTopicResult, error: RequestError) -> None:
    result.error_code, result.error_message = int(error.code), error.message or error.code.text


def _twice(same: list[DeleteTopicState]) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=next((one.name for one in same if one.name is not None), None),
        topic_id=next((one.topic_id for one in same if one.topic_id != ZERO_UUID), ZERO_UUID),
        error_code=int(ErrorCode.INVALID_REQUEST),
        error_message="The topic is given more than once.",
    )
