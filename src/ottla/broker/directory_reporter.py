"""Reports failed and full data directories of this broker to the controller (rule C6).

The controller then moves leaderships to other brokers, and removes the replicas from ISRs. A full
directory is reported when an append or a checkpoint finds it full. A failed one is reported until
the controller has stored the consequences, and again to each new controller.

Invariant: one report at a time. The replicas of a failed directory are not fetched any more when it
is reported, so they cannot join an ISR.
"""

import logging
from typing import Final

from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_roles import ReplicaRoles
from ottla.clock import Clock
from ottla.controller.directory_report import DirectoryReport, request_of
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, ControllerEpoch, TopicPartition
from ottla.log.directory import DataDirectory
from ottla.log.log_manager import LogManager
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import ControllerChannel

_LOG = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1  # between two reports: every append to a full directory causes one


class DirectoryReporter:
    """Sends the reports of one broker."""

    def __init__(
        self,
        node_id: BrokerId,
        *,
        clock: Clock,
        logs: LogManager,
        metadata_cache: MetadataCache,
        roles: ReplicaRoles,
        channel: ControllerChannel,
        backoff: Backoff,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._logs = logs
        self._metadata_cache = metadata_cache
        self._roles = roles
        self._channel = channel
        self._backoff = backoff
        self._full: dict[str, DataDirectory] = {}  # by path: found full, and not reported yet
        self._reported: set[TopicPartition] = set()  # in failed directories
        self._reported_to = ControllerEpoch(-1)

    def note_full(self, directory: DataDirectory) -> None:
        """Report a directory that is full."""
        self._full[directory.path] = directory
        self._roles.directories_changed.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        due, failures = self._roles.directories_changed, 0
        while True:
            await due.wait()
            due.clear()
            await self._roles.stop_offline()
            full, self._full = self._full, {}
            report = self._report(full)
            if not report:
                continue
            if await self._send(report):
                failures = 0
                await self._clock.sleep(PAUSE_SECONDS)
            else:
                failures += 1
                self._full = full | self._full
                due.set()
                await self._clock.sleep(self._backoff.pause_s(failures))

    def _report(self, full: dict[str, DataDirectory]) -> DirectoryReport:
        image = self._metadata_cache.image
        if image.controller_epoch != self._reported_to:
            self._reported, self._reported_to = set(), image.controller_epoch
        return DirectoryReport(
            [one for one in self._roles.offline() if one not in self._reported],
            [
                hosted.partition
                for hosted in (self._logs if full else ())
                if hosted.directory.path in full
                and hosted.directory.failure is None
                and self._can_leave(hosted.partition)
            ],
        )

    def _can_leave(self, partition: TopicPartition) -> bool:
        """Whether another replica can take over from one in a full directory."""
        state = self._metadata_cache.image.state(*partition)
        return state is not None and self._node_id in state.in_sync and len(state.in_sync) > 1

    async def _send(self, report: DirectoryReport) -> bool:
        """Return whether the controller has stored the consequences."""
        image = self._metadata_cache.image
        request = request_of(report, image, self._node_id, self._roles.broker_epoch)
        try:
            answer = await self._channel.ask(request, AssignReplicasToDirsResponse)
        except RequestError as error:
            reason = str(error)
        else:
            if answer.error_code == ErrorCode.NONE:
                self._reported.update(report.failed)
                return True
            reason = ErrorCode.of(answer.error_code).name
        about = {"failed": len(report.failed), "full": len(report.full), "reason": reason}
        _LOG.warning("data directories not reported", about)
        return False
