"""Messages match kio, an independent implementation generated from Kafka's definitions."""

from random import Random
from typing import Final

import protocol_kio
from cases import each_case
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.headers import (
    RequestHeader,
    read_request_header,
    write_request_header,
    write_response_header,
)
from ottla.protocol.message import Message
from protocol_values import MESSAGES, example, message, name_of
from sampling import sample

# Messages that kio does not have. Kafka 4.0 removed LeaderAndIsr, StopReplica, UpdateMetadata and
# ControlledShutdown. The records of internal topics and of the snapshot are not in the module that
# kio generates from. test_golden compares all of these with bytes of Kafka's own classes.
LACKING: Final = {
    "LeaderAndIsrRequest": range(8),
    "LeaderAndIsrResponse": range(8),
    "StopReplicaRequest": range(5),
    "StopReplicaResponse": range(5),
    "UpdateMetadataRequest": range(9),
    "UpdateMetadataResponse": range(9),
    "ControlledShutdownRequest": range(4),
    "ControlledShutdownResponse": range(4),
    "ConsumerGroupCurrentMemberAssignmentKey": range(1),
    "ConsumerGroupCurrentMemberAssignmentValue": range(1),
    "ConsumerGroupMemberMetadataKey": range(1),
    "ConsumerGroupMemberMetadataValue": range(1),
    "ConsumerGroupMetadataKey": range(1),
    "ConsumerGroupMetadataValue": range(1),
    "ConsumerGroupPartitionMetadataKey": range(1),
    "ConsumerGroupPartitionMetadataValue": range(1),
    "ConsumerGroupRegularExpressionKey": range(1),
    "ConsumerGroupRegularExpressionValue": range(1),
    "ConsumerGroupTargetAssignmentMemberKey": range(1),
    "ConsumerGroupTargetAssignmentMemberValue": range(1),
    "ConsumerGroupTargetAssignmentMetadataKey": range(1),
    "ConsumerGroupTargetAssignmentMetadataValue": range(1),
    "GroupMetadataKey": range(1),
    "GroupMetadataValue": range(5),
    "OffsetCommitKey": range(1),
    "OffsetCommitValue": range(5),
    "TransactionLogKey": range(1),
    "TransactionLogValue": range(2),
    "ProducerSnapshot": range(1, 2),
}

VALUES_PER_VERSION: Final = 8
VALUES_SAMPLED: Final = 2  # besides the first

JUDGED: Final = [cls for cls in MESSAGES if cls.__name__ not in LACKING]


def test_messages_unknown_to_kio_are_listed() -> None:
    lacking = {
        cls.__name__: versions
        for cls in MESSAGES
        if (versions := [v for v in cls.VERSIONS if protocol_kio.entity_of(cls, v) is None])
    }
    assert lacking == {name: list(versions) for name, versions in LACKING.items()}


@each_case("cls", JUDGED, ids=name_of)
def test_kio_encodes_and_decodes_the_same(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        entity = protocol_kio.entity_of(cls, version)
        assert entity is not None
        for seed in (0, *sample(range(1, VALUES_PER_VERSION), VALUES_SAMPLED)):
            random = Random(f"kio {cls.__name__} {version} {seed}")
            made = message(random, cls, version) if seed else example(cls, version)
            ours = protocol_kio.tamed(made, entity)
            theirs = protocol_kio.converted(ours, entity)
            raw = ours.encode(version)
            assert raw == protocol_kio.write(theirs), (version, seed)
            assert protocol_kio.read(entity, raw) == (theirs, len(raw)), (version, seed)
            assert cls.decode(protocol_kio.write(theirs), version) == ours, (version, seed)


@each_case("cls", JUDGED, ids=name_of)
def test_kio_agrees_on_key_versions_and_flexibility(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        entity = protocol_kio.entity_of(cls, version)
        assert entity is not None
        assert entity.__flexible__ is (version in cls.FLEXIBLE)
        if cls.API is not None:
            assert entity.__api_key__ == cls.API.key
    for outside in (cls.VERSIONS.low - 1, cls.VERSIONS.high + 1):
        if (cls.__name__, outside) not in NEWER:
            assert protocol_kio.entity_of(cls, outside) is None


def test_kio_agrees_on_nullable_fields() -> None:
    differing: list[str] = []
    for cls in JUDGED:
        for version in cls.VERSIONS:
            entity = protocol_kio.entity_of(cls, version)
            assert entity is not None
            found = protocol_kio.differing_nullability(cls, entity, version)
            differing += [f"{cls.__name__} v{version}: {what}" for what in found]
    assert not differing, "\n".join(differing)


# Versions that kio has and we do not have: none in the pinned release.
NEWER: Final[set[tuple[str, int]]] = set()

CLIENT_IDS: Final = (None, "", "ottla", "\0", "é\U0001f600", "x" * 32_767)


@each_case("client_id", CLIENT_IDS, ids=lambda c: repr(c)[:12])
def test_request_headers_match_kio(client_id: str | None) -> None:
    for api in API_OF_KEY.values():
        for version in api.versions:
            entity = protocol_kio.entity_of(api.request, version)
            if entity is None:
                continue
            schema = entity.__header_schema__
            header = RequestHeader(api.key, version, 2**31 - 1, client_id)
            raw = write_request_header(header, api.request_header_version(version))
            assert raw == protocol_kio.write(
                schema(
                    request_api_key=header.api_key,
                    request_api_version=header.api_version,
                    correlation_id=header.correlation_id,
                    client_id=header.client_id,
                )
            )
            body = 1 if api.request_header_version(version) == 2 else 0
            assert read_request_header(raw) == (header, len(raw) - body)


def test_response_headers_match_kio() -> None:
    for api in API_OF_KEY.values():
        for version in api.versions:
            entity = protocol_kio.entity_of(api.response, version)
            if entity is not None:
                theirs = protocol_kio.write(entity.__header_schema__(correlation_id=-5))
                header_version = api.response_header_version(version)
                assert write_response_header(-5, header_version) == theirs
