"""Conversion of protocol values: unknown values do not fail, secrets stay secret."""

import base64
import hashlib
import hmac

import pytest

from ottla.client.admin import (
    Acl,
    AclFilter,
    AclPattern,
    AclResource,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    ConfigType,
    Operation,
    Permission,
    Quota,
    QuotaEntity,
    ScramMechanism,
    ScramPassword,
)
from ottla.client.admin.group_descriptions import classic_described
from ottla.client.admin.operations import NOT_ASKED, operations
from ottla.client.admin.scram_users import SALT_BYTES, alter_request, salted
from ottla.client.partitions import by_topic, each_once, in_order, names
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_embedded,
)
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)


def test_unknown_numbers_become_unknown() -> None:
    assert Operation(99) is Operation.UNKNOWN
    assert AclResource(99) is AclResource.UNKNOWN
    assert AclPattern(99) is AclPattern.UNKNOWN
    assert Permission(99) is Permission.UNKNOWN
    assert ConfigKind(99) is ConfigKind.UNKNOWN
    assert ConfigSource(99) is ConfigSource.UNKNOWN
    assert ConfigType(99) is ConfigType.UNKNOWN
    assert ScramMechanism(99) is ScramMechanism.UNKNOWN


def test_operations_are_decoded_from_bits() -> None:
    assert operations(NOT_ASKED) is None
    assert operations(0) == frozenset()
    assert operations(1 << 3 | 1 << 8) == {Operation.READ, Operation.DESCRIBE}
    assert operations(1 << 30) == {Operation.UNKNOWN}


def test_partitions_are_pairs_with_readable_text() -> None:
    assert each_once([("t", 1), ("t", 1), ("t", 0)]) == [("t", 1), ("t", 0)]
    assert str(each_once([("t", 1)])[0]) == "t-1"
    assert by_topic([("t", 1), ("u", 0), ("t", 0)]) == {"t": [1, 0], "u": [0]}
    assert in_order([("u", [1]), ("t", [2, 0])]) == (("t", 0), ("t", 2), ("u", 1))


def test_single_name_is_accepted_as_a_list() -> None:
    assert names("orders") == ["orders"]
    assert names(["a", "b", "a"]) == ["a", "b"]


def test_values_have_readable_text() -> None:
    deny = Acl(
        AclResource.TOPIC,
        "team-",
        "User:bob",
        Operation.WRITE,
        Permission.DENY,
        AclPattern.PREFIXED,
    )
    assert str(deny) == "deny write of topic team-* to User:bob"
    assert str(AclFilter(AclResource.GROUP, "g")) == "ACLs on group g"
    assert str(ConfigResource.topic("t")) == "topic t"
    assert str(ConfigResource.broker(None)) == "broker defaults"
    assert str(QuotaEntity("u", Quota.DEFAULT)) == "user u, client-id DEFAULT"
    assert str(QuotaEntity()) == "every entity"


def test_passwords_are_salted_as_in_rfc_7677() -> None:
    """The example of RFC 7677, section 3: the salted password is enough to compute the proof."""
    password = ScramPassword("user", "pencil", ScramMechanism.SHA_256, 4096)
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    )
    client_key = hmac.digest(salted(password, salt), b"Client Key", "sha256")
    stored = hashlib.sha256(client_key).digest()
    signature = hmac.digest(stored, exchange.encode(), "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def test_password_is_neither_printed_nor_sent() -> None:
    password = ScramPassword("alice", "open sesame")
    assert "sesame" not in repr(password)
    request = alter_request([password], lambda count: bytes(range(count)))
    assert b"sesame" not in request.encode(0)
    (sent,) = request.upsertions
    assert len(sent.salt) == SALT_BYTES
    assert len(sent.salted_password) == 64
    with pytest.raises(ValueError, match="use SHA_256 or SHA_512"):
        ScramPassword("alice", "secret", ScramMechanism.UNKNOWN)


def member(metadata: bytes, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        member_metadata=metadata,
        member_assignment=assignment,
    )


def group(protocol_type: str, *members: DescribedGroupMember) -> DescribeGroupsResponse:
    one = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=members,
    )
    return DescribeGroupsResponse(groups=[one])


def test_member_metadata_is_decoded_only_for_consumers() -> None:
    metadata = encode_embedded(ConsumerProtocolSubscription(topics=["u", "t"]), 3)
    parts = [TopicPartition(topic="t", partitions=(1, 0))]
    assignment = encode_embedded(ConsumerProtocolAssignment(assigned_partitions=parts), 3)
    result = classic_described(group("consumer", member(metadata, assignment)))["g"]
    assert not isinstance(result, Exception)
    (one,) = result.members
    assert one.topics == ("t", "u")
    assert one.assignment == (("t", 0), ("t", 1))
    for answer in (
        group("connect", member(metadata, assignment)),
        group("consumer", member(b"\0", b"\xff\xff\xff")),
    ):
        other = classic_described(answer)["g"]
        assert not isinstance(other, Exception)
        assert (other.members[0].topics, other.members[0].assignment) == ((), ())
        assert other.members[0].metadata
