"""Request and response headers."""

import struct

import pytest

from cases import each_case
from ottla.errors import ProtocolViolation
from ottla.protocol.headers import (
    RequestHeader,
    header_tags_end,
    read_request_header,
    read_response_header,
    response_body_position,
    write_request_header,
    write_response_header,
)
from protocol_values import varint

HEADER = RequestHeader(18, 3, 77, "ottla")


@each_case("client_id", [None, "", "ottla", "\0", "é\u20ac\U0001f600", "x" * 32_767])
@each_case("version", [1, 2])
def test_request_header_round_trip(client_id: str | None, version: int) -> None:
    header = HEADER._replace(client_id=client_id)
    raw = write_request_header(header, version)
    for frame in (raw + b"body", memoryview(raw + b"body"), bytearray(raw + b"body")):
        read, position = read_request_header(frame)
        assert read == header
        if version == 2:
            position = header_tags_end(frame, position)
        assert frame[position:] == b"body"


@each_case("number", [-(2**15), -1, 0, 2**15 - 1])
def test_header_numbers_at_their_limits(number: int) -> None:
    header = RequestHeader(number, number, number * 65_536, None)
    assert read_request_header(write_request_header(header, 1)) == (header, 10)


def test_truncated_request_header_is_rejected() -> None:
    raw = write_request_header(HEADER, 1)
    for end in range(len(raw)):
        with pytest.raises(ProtocolViolation):
            read_request_header(raw[:end])


@each_case("length", [-2, -32_768, 6, 32_767])
def test_client_id_with_invalid_length_is_rejected(length: int) -> None:
    raw = struct.pack(">hhih", 18, 3, 77, length) + b"ottla"
    with pytest.raises(ProtocolViolation, match="client id"):
        read_request_header(raw)


@each_case("client_id", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"a\xe2\x82"])
def test_client_id_with_invalid_utf8_is_rejected(client_id: bytes) -> None:
    raw = struct.pack(">hhih", 18, 3, 77, len(client_id)) + client_id
    for frame in (raw, memoryview(raw)):
        with pytest.raises(ProtocolViolation, match="client id"):
            read_request_header(frame)


def test_header_tags_are_skipped_and_checked() -> None:
    section = varint(2) + b"\0\3abc" + b"\7\0"
    assert header_tags_end(b"head" + section + b"body", 4) == 4 + len(section)
    assert header_tags_end(b"\0", 0) == 1
    many = varint(300) + b"".join(varint(n) + b"\1x" for n in range(300))
    assert header_tags_end(memoryview(many), 0) == len(many)
    bad = [b"", b"\1", b"\1\0", b"\1\0\2a", b"\2\1\0\1\0", b"\2\1\0\0\0", b"\x80\x00", b"\xff" * 9]
    for raw in bad:
        with pytest.raises(ProtocolViolation):
            header_tags_end(raw, 0)
    for end in range(len(section)):
        with pytest.raises(ProtocolViolation):
            header_tags_end(section[:end], 0)


@each_case("version", [0, 1])
@each_case("correlation_id", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_response_header_round_trip(correlation_id: int, version: int) -> None:
    raw = write_response_header(correlation_id, version) + b"body"
    assert read_response_header(raw) == correlation_id
    assert raw[response_body_position(raw, version) :] == b"body"


def test_truncated_response_header_is_rejected() -> None:
    for end in range(4):
        with pytest.raises(ProtocolViolation):
            read_response_header(b"\0\0\0\1"[:end])
    with pytest.raises(ProtocolViolation):
        response_body_position(b"\0\0\0\1", 1)
