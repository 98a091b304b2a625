"""Our serializers compared with Java's: what they write, read and refuse.

The same seed generates the same questions. Java's answers are recorded as fingerprints.
"""

import struct
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from judges.java import source_command
from judges.recording import Json, Scenario
from kafka_java import judge_needed
from ottla.client.serializers import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    VOID,
    DeserializationFailed,
    Serde,
    SerializationFailed,
    deserialize,
    serialize,
    string,
    uuid_text,
)
from recorded import assert_answers, recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

pytestmark = pytest.mark.recorded

JUDGE = Path(__file__).with_name("SerializerJudge.java")
ENCODINGS = (
    "UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32", "UTF-32BE", "UTF-32LE",
    "US-ASCII", "ISO-8859-1", "windows-1252",
)  # fmt: skip
WIDE = ("UTF-16", "UTF-32")
REFUSED = "!"


class Question(NamedTuple):
    form: str
    encoding: str
    step: str
    given: str


class Form(NamedTuple):
    """A serializer, with the text format of its values in questions and answers."""

    serde: Serde[Any]
    parse: Callable[[str], Any]
    show: Callable[[Any], str]


def units(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def text_of(shown: str) -> str:
    """Decode UTF-16 units; surrogates stay separate, which only invalid input produces."""
    return bytes.fromhex(shown).decode("utf-16-be", "surrogatepass")


def float_of(bits: str) -> float:
    return struct.unpack(">f", bytes.fromhex(bits))[0]


def float_bits(value: float) -> str:
    return struct.pack(">f", value).hex()


def double_of(bits: str) -> float:
    return struct.unpack(">d", bytes.fromhex(bits))[0]


def double_bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def truth(value: bool) -> str:
    return "true" if value else "false"


def form(name: str, encoding: str) -> Form:
    match name:
        case "string":
            return Form(string(encoding), text_of, units)
        case "uuid":
            return Form(uuid_text(encoding), uuid.UUID, str)
        case "bytes":
            return Form(BYTES, bytes.fromhex, bytes.hex)
        case "float":
            return Form(FLOAT, float_of, float_bits)
        case "double":
            return Form(DOUBLE, double_of, double_bits)
        case "boolean":
            return Form(BOOLEAN, "true".__eq__, truth)
        case "void":
            return Form(VOID, str, str)
        case _:
            return Form({"short": SHORT, "int": INT, "long": LONG}[name], int, str)


def our_answer(question: Question) -> str:
    serde, parse, show = form(question.form, question.encoding)
    given = None if question.given == "null" else question.given
    try:
        if question.step == "write":
            value = None if given is None else parse(given)
            data = serialize(serde.serialize, "t", "value", value)
            return "null" if data is None else data.hex()
        data = None if given is None else bytes.fromhex(given)
        read = deserialize(serde.deserialize, "t", 0, 0, "value", data)
        return "null" if read is None else show(read)
    except (SerializationFailed, DeserializationFailed):
        return REFUSED


def questions() -> Iterator[Question]:
    for name in ("string", "bytes", "short", "int", "long", "float", "double", "boolean", "uuid"):
        yield Question(name, "UTF-8", "write", "null")
        yield Question(name, "UTF-8", "read", "null")
    yield Question("void", "UTF-8", "write", "null")
    yield Question("void", "UTF-8", "read", "null")
    yield Question("void", "UTF-8", "read", "")
    yield Question("void", "UTF-8", "read", "00")
    random = Random(41)
    yield from of_numbers(random)
    yield from of_bytes(random)
    yield from of_text(random)
    yield from of_uuids(random)


# NaNs, infinities, negative zero, and the smallest values.
ODD_FLOATS = (
    "7fc00000", "ffc00000", "7fc12345", "7f800000", "ff800000", "80000000", "00000001",
)  # fmt: skip
ODD_DOUBLES = (
    "7ff8000000000000", "fff8000000000000", "7ff8000000012345", "7ff0000000000000",
    "fff0000000000000", "8000000000000000", "0000000000000001",
)  # fmt: skip


def of_numbers(random: Random) -> Iterator[Question]:
    for name, bits in (("short", 16), ("int", 32), ("long", 64)):
        edge = 1 << bits - 1
        numbers = [0, 1, -1, 255, -256, edge - 1, -edge]
        numbers += [random.randrange(-edge, edge) for _ in range(100)]
        for number in numbers:
            yield Question(name, "UTF-8", "write", str(number))
        yield from of_sizes(random, name, bits // 8)
    for name, size, odd in (("float", 4, ODD_FLOATS), ("double", 8, ODD_DOUBLES)):
        for bits in (*odd, *(random.randbytes(size).hex() for _ in range(100))):
            if is_signalling(bits):
                continue  # Python cannot hold it
            yield Question(name, "UTF-8", "write", bits)
            yield Question(name, "UTF-8", "read", bits)
        yield from of_sizes(random, name, size)


def is_signalling(bits: str) -> bool:
    number, fraction = int(bits, 16), 23 if len(bits) == 8 else 52
    exponent = (1 << len(bits) * 4 - 1 - fraction) - 1
    return (
        number >> fraction & exponent == exponent
        and number & (1 << fraction) - 1 != 0
        and not number >> fraction - 1 & 1
    )


def of_sizes(random: Random, name: str, size: int) -> Iterator[Question]:
    """Yield byte strings of the right length, and some that are too short or too long."""
    for length in (*range(size * 2 + 2), *[size] * 100):
        data = random.randbytes(length)
        if name in ("float", "double") and length == size and is_signalling(data.hex()):
            continue
        yield Question(name, "UTF-8", "read", data.hex())


def of_bytes(random: Random) -> Iterator[Question]:
    for length in (0, 1, 2, 100):
        for step in ("write", "read"):
            yield Question("bytes", "UTF-8", step, random.randbytes(length).hex())
    for given in ("true", "false"):
        yield Question("boolean", "UTF-8", "write", given)
    for data in ("", "00", "01", "02", "ff", "0000", "0101"):
        yield Question("boolean", "UTF-8", "read", data)


# Characters of one to four bytes, BOMs, surrogates, and bytes where Windows-1252 and Latin-1
# differ.
LETTERS = "a?ß€\U0001f600\ufeff\ufffe\ufffd\x00\x81\x9f\ud83d\ude00\udc00\uffff\u20ac\u0153中"


def of_text(random: Random) -> Iterator[Question]:
    for encoding in ENCODINGS:
        for count in (0, *[1] * 40, *[2] * 80, *[6] * 80):
            text = "".join(random.choices(LETTERS, k=count))
            yield Question("string", encoding, "write", units(text))
            sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            data = sound.encode(encoding, "replace")
            yield Question("string", encoding, "read", data.hex())
            yield Question("string", encoding, "read", damaged(random, data).hex())
        for length in (*range(9), *[4] * 200, *[12] * 100):
            yield Question("string", encoding, "read", random.randbytes(length).hex())
        for mark in ("feff", "fffe", "0000feff", "fffe0000", "efbbbf"):
            yield Question("string", encoding, "read", mark)
            yield Question("string", encoding, "read", mark * 2 + "00000041")


def damaged(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + random.choice((b"", b"\xff", b"\xed\xa0", b"\xf4\x90")) + data[at + 1 :]


def of_uuids(random: Random) -> Iterator[Question]:
    whole = [str(uuid.UUID(int=random.getrandbits(128))) for _ in range(50)]
    for given in (*whole, str(uuid.UUID(int=0)), str(uuid.UUID(int=(1 << 128) - 1))):
        for encoding in ("UTF-8", "UTF-16", "US-ASCII"):
            yield Question("uuid", encoding, "write", given)
            data = uuid_text(encoding).serialize("t", uuid.UUID(given)) or b""
            yield Question("uuid", encoding, "read", data.hex())
    one = whole[0]
    odd = [
        "", "-", "----", "1-1-1-1-1", "+1-1-1-1-+a", "1-1-1-1", "1-1-1-1-1-1", "1-1-1-1-",
        "-1-1-1-1", "1--1-1-1", "123456789abcdef-1-1-1-1", "ffffffffffffffff-1-1-1-1",
        "7fffffffffffffff-1-1-1-1", "8000000000000000-1-1-1-1", "1-fffff-1-1-1",
        "1-1-1-1-1234567890abcdef", "g-1-1-1-1", " 1-1-1-1-1", "1_0-1-1-1-1", "0x1-1-1-1-1",
        "++1-1-1-1-1", one.upper(), one.replace("-", ""), "{" + one + "}", "urn:uuid:" + one,
        one + " ", one[:-1], one[:-1] + "g", "0" + one, one + "\n",
    ]  # fmt: skip
    for given in odd:
        yield Question("uuid", "UTF-8", "read", given.encode().hex())
    yield Question("uuid", "UTF-8", "read", "ff")


def loses_more_in_java(question: Question) -> bool:
    """Java drops the character after a lone surrogate in UTF-16; ours is tested elsewhere."""
    if question.form != "string" or question.step != "read" or question.given == "null":
        return False
    if not question.encoding.startswith(WIDE):
        return False
    try:
        string(question.encoding, strict=True).deserialize("t", bytes.fromhex(question.given))
    except UnicodeDecodeError:
        return True
    return False


QUESTIONS = list(questions())
TESTS = sorted({(q.form, q.encoding, q.step) for q in QUESTIONS})


@pytest.fixture(scope="module")
def java() -> Callable[[], dict[Question, str]]:
    """Return Java's answers; Java runs once."""

    @cache
    def answers() -> dict[Question, str]:
        with judge_needed():
            command = source_command(JUDGE)
        asked = "".join("\t".join(question) + "\n" for question in QUESTIONS)
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=240, check=False
        )
        found = done.stdout.splitlines()
        assert len(found) == len(QUESTIONS), done.stderr
        return dict(zip(QUESTIONS, found, strict=True))

    return answers


@pytest.mark.parametrize(("name", "encoding", "step"), TESTS)
def test_serde_does_what_javas_does(
    scenario: Scenario,
    java: Callable[[], dict[Question, str]],
    name: str,
    encoding: str,
    step: str,
) -> None:
    asked = [
        question
        for question in QUESTIONS
        if question[:3] == (name, encoding, step) and not loses_more_in_java(question)
    ]
    assert asked
    assert_answers(
        scenario,
        ["\t".join(one) for one in asked],
        [our_answer(one) for one in asked],
        lambda _: [java()[one] for one in asked],
    )


def test_java_refuses_and_accepts_some_of_each(
    scenario: Scenario, java: Callable[[], dict[Question, str]]
) -> None:
    """Guards against a Java process that refuses everything."""
    for name in ("short", "int", "long", "float", "double", "boolean", "uuid", "void"):

        def refused(name: str = name) -> Json:
            answers = [a for q, a in java().items() if (q.form, q.step) == (name, "read")]
            return sorted({one == REFUSED for one in answers})

        assert scenario.answer(f"{name}: refused", refused) == [False, True]
