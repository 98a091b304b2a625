"""The content of the coordination nodes."""

import json

import pytest

from cases import each_case
from ottla.cluster.znodes import (
    BadNode,
    ProducerIdBlock,
    StateNode,
    TopicNode,
    changed_config,
    format_cluster_id,
    format_config,
    format_controller,
    parse_cluster_id,
    parse_config,
    parse_controller,
    parse_producer_id_block,
    parse_state,
    parse_topic,
    state_path,
)
from ottla.ids import BrokerId, LeaderEpoch, Uuid

ID = Uuid(bytes(range(16)))


def test_topic_node_round_trip_keeps_unknown_fields() -> None:
    node = TopicNode(ID, ((BrokerId(1), BrokerId(2)), (BrokerId(2), BrokerId(1))))
    data = json.loads(node.format())
    assert data == {
        "version": 3,
        "topic_id": str(ID),
        "partitions": {"0": [1, 2], "1": [2, 1]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    data["later"] = [1]
    data["adding_replicas"] = {"1": [3]}
    data["removing_replicas"] = {"1": [1, 2]}
    found = parse_topic(json.dumps(data).encode(), "/p")
    assert found.partitions == node.partitions
    assert (found.adding, found.removing) == ({1: (3,)}, {1: (1, 2)})
    assert json.loads(found.format()) == data


def test_older_topic_node_has_no_reassignments() -> None:
    data = {"version": 3, "topic_id": str(ID), "partitions": {"0": [1]}}
    assert parse_topic(json.dumps(data).encode(), "/p") == TopicNode(ID, ((BrokerId(1),),))


def test_nodes_of_one_replica_have_kafkas_bytes() -> None:
    one = BrokerId(1)
    assert StateNode(one, LeaderEpoch(0), (one,), 1).format() == (
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    )
    assert TopicNode(ID, ((one,),)).format() == (
        b'{"removing_replicas":{},"partitions":{"0":[1]},"topic_id":"%s","adding_replicas":{},'
        b'"version":3}' % str(ID).encode()
    )


def test_state_node_round_trip_keeps_unknown_fields() -> None:
    node = StateNode(BrokerId(1), LeaderEpoch(4), (BrokerId(1), BrokerId(2)), 7)
    data = json.loads(node.format())
    assert data == {
        "controller_epoch": 7, "leader": 1, "version": 1, "leader_epoch": 4, "isr": [1, 2],
    }  # fmt: skip
    data["later"] = [3]
    found = parse_state(json.dumps(data).encode(), "/p")
    assert found._replace(other={}) == node
    assert json.loads(found.format()) == data
    data |= {"elr": [3], "last_known_elr": [2]}
    found = parse_state(json.dumps(data).encode(), "/p")
    assert (found.elr, found.last_known_elr, found.other) == ((3,), (2,), {"later": [3]})
    assert json.loads(found.format()) == data
    assert state_path("t", 3) == "/brokers/topics/t/partitions/3/state"


def test_settings_and_ids_round_trip() -> None:
    assert parse_config(format_config({"a": "1", "b": ""}), "/p") == {"a": "1", "b": ""}
    assert parse_config(b'{"version":1}', "/p") == {}
    changed = changed_config(b'{"config":{"a":"1"},"later":2}', "/p", {"b": "2"})
    assert json.loads(changed) == {"config": {"b": "2"}, "later": 2}
    assert parse_controller(format_controller(BrokerId(3), 5)) == 3
    assert parse_cluster_id(format_cluster_id("abc")) == "abc"
    block = ProducerIdBlock(BrokerId(1), 1000, 1999)
    assert parse_producer_id_block(block.format()) == block


@each_case(
    "data", [b"", b"[]", b"{", b"{}", b'{"partitions": 3}', b'{"partitions": {"1": [1]}}', b"\xff"]
)
def test_malformed_node_raises_bad_node(data: bytes) -> None:
    with pytest.raises(BadNode, match="/p"):
        parse_topic(data, "/p")
    with pytest.raises(BadNode, match="/p"):
        parse_state(data, "/p")
    with pytest.raises(BadNode):
        parse_cluster_id(data)
    with pytest.raises(BadNode):
        parse_producer_id_block(data)
    with pytest.raises(BadNode):
        parse_controller(data)
