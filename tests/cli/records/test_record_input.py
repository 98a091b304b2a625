"""Parsing of lines to records."""

import pytest

from cases import each_case
from ottla.cli.records.input import BadLine, Draft, LineForm, header_of, timestamp_of
from ottla.cli.records.sending import split_lines


def test_line_is_a_value() -> None:
    form = LineForm(key=b"k", partition=2)
    assert form.is_plain
    assert form.draft(b"v") == Draft(b"k", b"v", (), 2)


def test_key_is_before_the_separator() -> None:
    form = LineForm(key_separator=b"::", null=b"-")
    assert form.draft(b"a::b::c") == Draft(b"a", b"b::c")
    assert form.draft(b"-::-") == Draft(None, None)
    assert form.draft(b"::") == Draft(b"", b"")
    with pytest.raises(BadLine, match="no '::' after a key"):
        form.draft(b"a:b")


def test_headers_are_added_to_all_records() -> None:
    form = LineForm(headers=(header_of("a=1=2"), header_of("b")))
    assert not form.is_plain
    assert form.draft(b"v").headers == (("a", b"1=2"), ("b", None))
    with pytest.raises(BadLine, match="is not a header"):
        header_of("=x")


@each_case(
    ("line", "draft"),
    [
        (b'{"value": "v"}', Draft(None, b"v")),
        (b"{}", Draft(None, None)),
        (b'{"key": "k", "partition": 3, "timestamp": 5}', Draft(b"k", None, (), 3, 5)),
        (b'{"value": {"a": 1}}', Draft(None, b'{"a":1}')),
        (b'{"value": 1.5, "key": true}', Draft(b"true", b"1.5")),
        (b'{"value": {"base64": "/w=="}}', Draft(None, b"\xff")),
        (b'{"headers": {"a": "1", "b": null}}', Draft(None, None, (("a", b"1"), ("b", None)))),
        (b'{"headers": [{"key": "a", "value": "1"}]}', Draft(None, None, (("a", b"1"),))),
        (b'{"headers": [["a", "1"]]}', Draft(None, None, (("a", b"1"),))),
        (b'{"topic": "x", "offset": 7, "value": "v"}', Draft(None, b"v")),
    ],
)  # fmt: skip
def test_json_line_is_a_record(line: bytes, draft: Draft) -> None:
    assert LineForm(json=True).draft(line) == draft


@each_case(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (rb'{"value": "\ud800"}', "unpaired surrogate"),
        (rb'{"value": "\\ud800 \ud83d\ude00', "not JSON"),
        (b'{"valeu": "v"}', "unknown field: valeu"),
        (b'{"partition": -1}', "-1 is not a partition number"),
        (b'{"partition": "0"}', "is not a partition number"),
        (b'{"timestamp": -1}', "-1 is not a timestamp"),
        (b'{"timestamp": "soon"}', "is not a timestamp"),
        (b'{"timestamp": true}', "is not a timestamp"),
        (b'{"value": {"base64": "!"}}', "not base64"),
        (b'{"headers": "a"}', "headers must be"),
        (b'{"headers": [1]}', "a header must be"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"value": ' + b"[" * 2000 + b"]" * 2000 + b"}", "nested too deeply"),
    ],
)
def test_invalid_json_line_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        LineForm(json=True).draft(line)


@each_case(
    ("said", "written"),
    [
        (b"0.1234567890123456789012", b"0.12345678901234568"),
        (b'{"a": 1e5, "a": [ 2E1 ]}', b'{"a":[20.0]}'),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b'"0.1234567890123456789012"', b"0.1234567890123456789012"),
    ],
)
def test_value_that_is_not_text_is_written_as_json(said: bytes, written: bytes) -> None:
    assert LineForm(json=True).draft(b'{"value": ' + said + b"}").value == written


def test_timestamp_is_a_number_or_a_date() -> None:
    assert timestamp_of("1970-01-01T00:00:01Z") == 1000
    assert timestamp_of("1970-01-01T01:00:00+01:00") == 0
    assert timestamp_of(None) is None
    with pytest.raises(BadLine):
        timestamp_of("1969-12-31")


def test_lines_end_with_a_newline() -> None:
    assert split_lines(b"a\n\nb\r\nc") == ([b"a", b"", b"b\r"], b"c")
    assert split_lines(b"") == ([], b"")
