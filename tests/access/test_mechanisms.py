"""PLAIN and OAUTHBEARER: messages follow their RFCs, and invalid values are refused."""

import pytest

from cases import each_case
from ottla.access.mechanisms import oauthbearer, plain
from ottla.access.scram_client import LoginFailed
from ottla.settings.config_types import Secret


def test_plain_message_follows_rfc_4616() -> None:
    ours = plain("tim", Secret("tanstäafl"))
    assert next(ours) == b"\0tim\0tanst\xc3\xa4afl"
    with pytest.raises(StopIteration):
        ours.send(b"")


@pytest.mark.parametrize(("name", "password"), [("a\0b", "p"), ("a", "p\0")])
def test_plain_refuses_zero_bytes(name: str, password: str) -> None:
    with pytest.raises(LoginFailed, match="zero byte"):
        next(plain(name, Secret(password)))


def test_oauthbearer_message_follows_rfc_7628() -> None:
    ours = oauthbearer(Secret("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="), {})
    assert next(ours) == b"n,,\1auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\1\1"
    with pytest.raises(StopIteration):
        ours.send(b"")


def test_oauthbearer_sends_extensions() -> None:
    ours = oauthbearer(Secret("t.o.k"), {"traceId": "123", "zone": "a b"})
    assert next(ours) == b"n,,\1auth=Bearer t.o.k\1traceId=123\1zone=a b\1\1"


@each_case(
    ("token", "extensions", "what"),
    [
        ("a b", {}, "characters"),
        ("", {}, "characters"),
        ("a\1b", {}, "characters"),
        ("a", {"auth": "x"}, "invalid SASL extension name"),
        ("a", {"trace-id": "x"}, "invalid SASL extension name"),
        ("a", {"trace": "x\1y"}, "invalid characters"),
        ("a", {"trace": ""}, "invalid characters"),
    ],
)
def test_oauthbearer_refuses_invalid_tokens_and_extensions(
    token: str, extensions: dict[str, str], what: str
) -> None:
    with pytest.raises(LoginFailed, match=what) as told:
        next(oauthbearer(Secret(token), extensions))
    assert "a b" not in str(told.value)


@each_case(
    ("answer", "reason"),
    [
        (b'{"status":"invalid_token","scope":"x"}', "invalid_token"),
        (b'{"status":5}', "no reason given"),
        (b"[1]", "no reason given"),
        (b"\xff", "no reason given"),
    ],
)
def test_rejected_token_is_acknowledged_and_fails(answer: bytes, reason: str) -> None:
    ours = oauthbearer(Secret("t"), {})
    next(ours)
    assert ours.send(answer) == b"\1"
    with pytest.raises(LoginFailed, match=reason):
        ours.send(b"")
