"""The error table, compared with a second copy of Kafka's codes."""

import copy
import pickle

from cases import each_case
from ottla.errors import ErrorCode, OttlaError, ProtocolViolation, RequestError, StorageFailure

# code, name, retriable, refresh metadata
FACTS = """
-1 UNKNOWN_SERVER_ERROR
0 NONE
1 OFFSET_OUT_OF_RANGE
2 CORRUPT_MESSAGE retriable
3 UNKNOWN_TOPIC_OR_PARTITION retriable refresh
4 INVALID_FETCH_SIZE
5 LEADER_NOT_AVAILABLE retriable refresh
6 NOT_LEADER_OR_FOLLOWER retriable refresh
7 REQUEST_TIMED_OUT retriable
8 BROKER_NOT_AVAILABLE
9 REPLICA_NOT_AVAILABLE retriable refresh
10 MESSAGE_TOO_LARGE
11 STALE_CONTROLLER_EPOCH
12 OFFSET_METADATA_TOO_LARGE
13 NETWORK_EXCEPTION retriable refresh
14 COORDINATOR_LOAD_IN_PROGRESS retriable
15 COORDINATOR_NOT_AVAILABLE retriable
16 NOT_COORDINATOR retriable
17 INVALID_TOPIC_EXCEPTION
18 RECORD_LIST_TOO_LARGE
19 NOT_ENOUGH_REPLICAS retriable
20 NOT_ENOUGH_REPLICAS_AFTER_APPEND retriable
21 INVALID_REQUIRED_ACKS
22 ILLEGAL_GENERATION
23 INCONSISTENT_GROUP_PROTOCOL
24 INVALID_GROUP_ID
25 UNKNOWN_MEMBER_ID
26 INVALID_SESSION_TIMEOUT
27 REBALANCE_IN_PROGRESS
28 INVALID_COMMIT_OFFSET_SIZE
29 TOPIC_AUTHORIZATION_FAILED
30 GROUP_AUTHORIZATION_FAILED
31 CLUSTER_AUTHORIZATION_FAILED
32 INVALID_TIMESTAMP
33 UNSUPPORTED_SASL_MECHANISM
34 ILLEGAL_SASL_STATE
35 UNSUPPORTED_VERSION
36 TOPIC_ALREADY_EXISTS
37 INVALID_PARTITIONS
38 INVALID_REPLICATION_FACTOR
39 INVALID_REPLICA_ASSIGNMENT
40 INVALID_CONFIG
41 NOT_CONTROLLER retriable
42 INVALID_REQUEST
43 UNSUPPORTED_FOR_MESSAGE_FORMAT
44 POLICY_VIOLATION
45 OUT_OF_ORDER_SEQUENCE_NUMBER
46 DUPLICATE_SEQUENCE_NUMBER
47 INVALID_PRODUCER_EPOCH
48 INVALID_TXN_STATE
49 INVALID_PRODUCER_ID_MAPPING
50 INVALID_TRANSACTION_TIMEOUT
51 CONCURRENT_TRANSACTIONS retriable
52 TRANSACTION_COORDINATOR_FENCED
53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED
54 SECURITY_DISABLED
55 OPERATION_NOT_ATTEMPTED
56 KAFKA_STORAGE_ERROR retriable refresh
57 LOG_DIR_NOT_FOUND
58 SASL_AUTHENTICATION_FAILED
59 UNKNOWN_PRODUCER_ID
60 REASSIGNMENT_IN_PROGRESS
61 DELEGATION_TOKEN_AUTH_DISABLED
62 DELEGATION_TOKEN_NOT_FOUND
63 DELEGATION_TOKEN_OWNER_MISMATCH
64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
65 DELEGATION_TOKEN_AUTHORIZATION_FAILED
66 DELEGATION_TOKEN_EXPIRED
67 INVALID_PRINCIPAL_TYPE
68 NON_EMPTY_GROUP
69 GROUP_ID_NOT_FOUND
70 FETCH_SESSION_ID_NOT_FOUND retriable
71 INVALID_FETCH_SESSION_EPOCH retriable
72 LISTENER_NOT_FOUND retriable refresh
73 TOPIC_DELETION_DISABLED
74 FENCED_LEADER_EPOCH retriable refresh
75 UNKNOWN_LEADER_EPOCH retriable
76 UNSUPPORTED_COMPRESSION_TYPE
77 STALE_BROKER_EPOCH
78 OFFSET_NOT_AVAILABLE retriable
79 MEMBER_ID_REQUIRED
80 PREFERRED_LEADER_NOT_AVAILABLE retriable refresh
81 GROUP_MAX_SIZE_REACHED
82 FENCED_INSTANCE_ID
83 ELIGIBLE_LEADERS_NOT_AVAILABLE retriable refresh
84 ELECTION_NOT_NEEDED retriable refresh
85 NO_REASSIGNMENT_IN_PROGRESS
86 GROUP_SUBSCRIBED_TO_TOPIC
87 INVALID_RECORD
88 UNSTABLE_OFFSET_COMMIT retriable
89 THROTTLING_QUOTA_EXCEEDED retriable
90 PRODUCER_FENCED
91 RESOURCE_NOT_FOUND
92 DUPLICATE_RESOURCE
93 UNACCEPTABLE_CREDENTIAL
94 INCONSISTENT_VOTER_SET
95 INVALID_UPDATE_VERSION
96 FEATURE_UPDATE_FAILED
97 PRINCIPAL_DESERIALIZATION_FAILURE
98 SNAPSHOT_NOT_FOUND
99 POSITION_OUT_OF_RANGE
100 UNKNOWN_TOPIC_ID retriable refresh
101 DUPLICATE_BROKER_REGISTRATION
102 BROKER_ID_NOT_REGISTERED
103 INCONSISTENT_TOPIC_ID retriable refresh
104 INCONSISTENT_CLUSTER_ID
105 TRANSACTIONAL_ID_NOT_FOUND
106 FETCH_SESSION_TOPIC_ID_ERROR retriable
107 INELIGIBLE_REPLICA
108 NEW_LEADER_ELECTED
109 OFFSET_MOVED_TO_TIERED_STORAGE
110 FENCED_MEMBER_EPOCH
111 UNRELEASED_INSTANCE_ID
112 UNSUPPORTED_ASSIGNOR
113 STALE_MEMBER_EPOCH
114 MISMATCHED_ENDPOINT_TYPE
115 UNSUPPORTED_ENDPOINT_TYPE
116 UNKNOWN_CONTROLLER_ID
117 UNKNOWN_SUBSCRIPTION_ID
118 TELEMETRY_TOO_LARGE
119 INVALID_REGISTRATION
120 TRANSACTION_ABORTABLE
121 INVALID_RECORD_STATE
122 SHARE_SESSION_NOT_FOUND retriable
123 INVALID_SHARE_SESSION_EPOCH retriable
124 FENCED_STATE_EPOCH
125 INVALID_VOTER_KEY
126 DUPLICATE_VOTER
127 VOTER_NOT_FOUND
128 INVALID_REGULAR_EXPRESSION
129 REBOOTSTRAP_REQUIRED
130 STREAMS_INVALID_TOPOLOGY
131 STREAMS_INVALID_TOPOLOGY_EPOCH
132 STREAMS_TOPOLOGY_FENCED
133 SHARE_SESSION_LIMIT_REACHED retriable
"""


def test_codes_match_kafka() -> None:
    table = [
        " ".join(
            [str(row.value), row.name]
            + ["retriable"] * row.retriable
            + ["refresh"] * row.refresh_metadata
        )
        for row in ErrorCode
    ]
    assert table == FACTS.split("\n")[1:-1]


def test_codes_run_without_a_gap() -> None:
    assert [int(row) for row in ErrorCode] == list(range(-1, 134))
    assert len(ErrorCode.__members__) == len(ErrorCode)  # no alias: each number has one name


@each_case("row", ErrorCode, ids=lambda row: row.name)
def test_text_is_a_sentence(row: ErrorCode) -> None:
    assert row.text.endswith(".")
    assert row.text == " ".join(row.text.split())
    assert row.text[0].isupper()
    assert len(row.text) >= 20
    assert row.name not in row.text


def test_texts_differ() -> None:
    assert len({row.text for row in ErrorCode}) == len(ErrorCode)


def test_of_finds_the_row_of_a_code() -> None:
    assert all(ErrorCode.of(int(row)) is row for row in ErrorCode)


@each_case("code", [-2, 134, 32767, -32768])
def test_unknown_code_is_unknown_server_error(code: int) -> None:
    assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_code_is_written_to_the_wire_as_a_number() -> None:
    assert ErrorCode.NOT_CONTROLLER == 41
    assert ErrorCode.NOT_CONTROLLER.to_bytes(2, "big", signed=True) == b"\x00\x29"


def test_request_error_text() -> None:
    error = RequestError(ErrorCode.MESSAGE_TOO_LARGE, "the batch has 5 bytes, 4 are allowed")
    assert str(error) == "MESSAGE_TOO_LARGE (10): the batch has 5 bytes, 4 are allowed"
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert error.message == "the batch has 5 bytes, 4 are allowed"


def test_request_error_without_message_has_default_text() -> None:
    error = RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
    assert str(error) == f"UNKNOWN_TOPIC_ID (100): {ErrorCode.UNKNOWN_TOPIC_ID.text}"
    assert error.message is None


def test_request_error_is_retriable_like_its_code() -> None:
    assert RequestError(ErrorCode.REQUEST_TIMED_OUT).retriable
    assert not RequestError(ErrorCode.INVALID_CONFIG).retriable


def test_request_error_survives_copying_and_another_process() -> None:
    error = RequestError(ErrorCode.INVALID_CONFIG, "no such setting")
    clones: list[object] = [copy.copy(error), pickle.loads(pickle.dumps(error))]
    for clone in clones:
        assert isinstance(clone, RequestError)
        assert clone.code is error.code
        assert str(clone) == str(error)


@each_case("kind", [ProtocolViolation, RequestError, StorageFailure])
def test_every_failure_is_an_ottla_error(kind: type[Exception]) -> None:
    assert issubclass(kind, OttlaError)
