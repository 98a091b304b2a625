"""FindCoordinator: the broker that coordinates a group."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.topics import PartlyLed, Topics
from ottla.cluster.image import Address
from ottla.errors import ErrorCode, RequestError
from ottla.groups.coordinator import partition_for
from ottla.ids import NO_BROKER
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.replication.partition import NO_TRANSACTIONS
from ottla.transport.connection import Connection, DeferredResponse

_GROUP = 0
_TRANSACTION = 1
_BATCHED = 4  # the first version with several keys


class FindCoordinatorHandler:
    """Finds the coordinators of groups."""

    def __init__(
        self,
        *,
        metadata_cache: MetadataCache,
        topics: Topics,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._metadata_cache = metadata_cache
        self._topics = topics
        self._scheduler = scheduler

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Return the coordinator; the first request creates __consumer_offsets."""
        message = request.message
        assert isinstance(message, FindCoordinatorRequest)
        return DeferredResponse(self._answer(message, request.version, connection.listener))

    async def _answer(
        self, message: FindCoordinatorRequest, version: int, listener: str
    ) -> Response:
        keys = message.coordinator_keys if version >= _BATCHED else (message.key,)
        found = [
            await self._find(message.key_type, key, listener)
            async for key in self._scheduler.new_loop().over(keys)
        ]
        if version >= _BATCHED:
            return FindCoordinatorResponse(coordinators=found)
        (one,) = found
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message or ErrorCode.NONE.name,  # as in Kafka, also on success
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    async def _find(self, key_type: int, key: str, listener: str) -> Coordinator:
        try:
            if key_type == _TRANSACTION:
                raise RequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
            if key_type != _GROUP:
                raise RequestError(ErrorCode.INVALID_REQUEST, "share groups are not supported")
            if OFFSETS_TOPIC not in self._metadata_cache.image.topics:
                await self._make_offsets_topic()
            topic = self._metadata_cache.image.topics.get(OFFSETS_TOPIC)
            if topic is None:  # the controller has created it, and has not told this broker yet
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            index = partition_for(key, len(topic.partitions))
            broker = self._metadata_cache.image.brokers.get(topic.partitions[index].leader)
            if broker is None:
                raise RequestError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{OFFSETS_TOPIC}-{index} has no leader: its brokers are down, or their log "
                    "directories are full or failed",
                )
            if listener not in broker.addresses:
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except RequestError as error:
            return _coordinator(key, NO_BROKER, Address("", -1), error)
        return _coordinator(key, broker.id, broker.addresses[listener], None)

    async def _make_offsets_topic(self) -> None:
        """Create __consumer_offsets; if that fails, the client asks again, as with Kafka."""
        try:
            await self._topics.create_offsets_topic()
        except PartlyLed:
            pass  # this group's partition may have a leader
        except RequestError as error:
            why = error.message or error.code.text
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from error


def _coordinator(
    key: str, node_id: int, address: Address, error: RequestError | None
) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=node_id,
        host=address.host,
        port=address.port,
        error_code=0 if error is None else int(error.code),
        error_message=None if error is None else error.message or error.code.text,
    )
