"""Another broker, as the controller tells it: updates as requests over a connection.

Invariant: the requests of an update are sent in order, each after the response to the one before.
"""

from collections.abc import Callable
from typing import Final

from ottla.cluster.image import ClusterImage
from ottla.controller.control_requests import failures_of, requests_of
from ottla.controller.control_update import ControlUpdate, Failures
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.transport.broker_channels import BrokerChannels

TIMEOUT_S: Final = 30.0  # of one request


class RemoteBroker:
    """Applies the controller's updates on another broker."""

    def __init__(
        self, broker: BrokerId, channels: BrokerChannels, image: Callable[[], ClusterImage]
    ) -> None:
        self._broker = broker
        self._channels = channels
        self._image = image  # the controller's

    async def apply(self, update: ControlUpdate) -> Failures:
        """Send an update; raises Disconnected, TimedOut, or RequestError if it is refused."""
        failures: dict[TopicPartition, RequestError] = {}
        for request in requests_of(update, self._image(), self._broker):
            match request:
                case LeaderAndIsrRequest():
                    answer = await self._channels.ask(
                        self._broker, request, LeaderAndIsrResponse, timeout_s=TIMEOUT_S
                    )
                    failures |= failures_of(request, answer)
                case StopReplicaRequest():
                    stopped = await self._channels.ask(
                        self._broker, request, StopReplicaResponse, timeout_s=TIMEOUT_S
                    )
                    _check(stopped.error_code)
                case UpdateMetadataRequest():
                    updated = await self._channels.ask(
                        self._broker, request, UpdateMetadataResponse, timeout_s=TIMEOUT_S
                    )
                    if updated.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                        left = RequestError(
                            ErrorCode.KAFKA_STORAGE_ERROR,
                            f"broker {self._broker} could not delete all files",
                        )
                        failures |= {TopicPartition(name, 0): left for name in update.deleted}
                    else:
                        _check(updated.error_code)
        return failures


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise RequestError(ErrorCode(code))
