"""Checks requests before they reach a group, and builds refusals.

Invariant: a refusal has Kafka's form for the API: per partition, per group, per member or for the
whole request.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    Commit,
    DeleteGroups,
    DeleteOffsets,
    Heartbeat,
    Join,
    Leave,
    Request,
    Sync,
)
from ottla.groups.responses import (
    GroupErrors,
    HeartbeatResult,
    JoinResult,
    LeaveResult,
    LeaverResult,
    PartitionErrors,
    Response,
    SyncResult,
)

_TEXT_BYTES_MAX: Final = 0x7FFF


def problem_of(request: Request, rules: GroupConfig) -> ErrorCode:
    """Return why a request is invalid in any state of its group, or NONE."""
    if isinstance(request, DeleteGroups):
        return ErrorCode.NONE
    # Early Kafka had committed offsets of a group without a name, so they can still be committed.
    nameless = isinstance(request, Commit) and request.transaction is None
    if not _is_short(request.group_id) or not (request.group_id or nameless):
        return ErrorCode.INVALID_GROUP_ID
    return _join_problem(request, rules) if isinstance(request, Join) else ErrorCode.NONE


def _join_problem(request: Join, rules: GroupConfig) -> ErrorCode:
    timeout_ms = request.session_timeout_ms
    if not rules.session_timeout_ms_min <= timeout_ms <= rules.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    texts = (
        request.new_member_id,
        request.instance_id or "",
        request.client_id,
        request.client_host,
        request.protocol_type,
        *(protocol.name for protocol in request.protocols),
    )
    return ErrorCode.NONE if all(map(_is_short, texts)) else ErrorCode.INVALID_REQUEST


def _is_short(text: str) -> bool:
    """Whether a record can hold the text: its length fields have two bytes."""
    return 4 * len(text) <= _TEXT_BYTES_MAX or len(text.encode()) <= _TEXT_BYTES_MAX


def refusal(request: Request, error: ErrorCode) -> Response:
    """Return the result of a refused request."""
    match request:
        case Join():
            return JoinResult(error, request.member_id)
        case Sync():
            return SyncResult(error)
        case Heartbeat():
            # While the group is being loaded, its members are considered alive.
            loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResult(ErrorCode.NONE if loading else error)
        case Leave():
            if error is not ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveResult(error)
            gone = (LeaverResult(*leaver, error) for leaver in request.leavers)
            return LeaveResult(leavers=tuple(gone))
        case Commit():
            refused = tuple((asked.partition, error) for asked in request.offsets)
            return PartitionErrors(partitions=refused)
        case DeleteOffsets():
            return PartitionErrors(error)
        case DeleteGroups():
            return GroupErrors(tuple((group_id, error) for group_id in request.group_ids))


_OF_APPENDS: Final[Mapping[ErrorCode, ErrorCode]] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def append_error_for_clients(error: ErrorCode) -> ErrorCode:
    """Return the error for a client after a failed append."""
    return _OF_APPENDS.get(error, error)
