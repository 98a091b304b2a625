"""Java's deserializers by class name: bytes in, text as Java prints it out.

Invariant: the text is what `toString` of Java's value returns. Byte arrays are an exception: Java
prints their address, and Ottla prints the bytes.
"""

from collections.abc import Callable, Mapping
from math import isfinite, isnan
from struct import Struct
from typing import Any, Final

from ottla.cli.records.forms import ToBytes
from ottla.client.serializers.java_forms import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    uuid_text,
)
from ottla.client.serializers.text import string

_PACKAGE: Final = "org.apache.kafka.common.serialization."
_SINGLE: Final = Struct(">f")


def deserializer(name: str, settings: Mapping[str, str], *, is_key: bool) -> ToBytes | None:
    """Return the deserializer of this class; None if unknown, LookupError for an unknown charset.

    `settings` are its own settings, such as `deserializer.encoding`.
    """
    short = name.removeprefix(_PACKAGE)
    if short in ("StringDeserializer", "UUIDDeserializer"):
        own = f"{'key' if is_key else 'value'}.deserializer.encoding"
        encoding = settings.get(own) or settings.get("deserializer.encoding") or "UTF-8"
        read = (string if short == "StringDeserializer" else uuid_text)(encoding).deserialize
        return _printing(read, str)
    return _KNOWN.get(short)


def _printing(read: Callable[[str, bytes], Any], text: Callable[[Any], str]) -> ToBytes:
    return lambda data: text(read("", data)).encode("utf-8", "replace")


def _truth(value: bool) -> str:
    return "true" if value else "false"


def double_text(value: float) -> str:
    """Format a double like Java."""
    return _float_text(value, repr(abs(value)))


def single_text(value: float) -> str:
    """Format a float like Java: with the fewest digits that identify it."""
    digits = repr(abs(value))
    if isfinite(value) and value:
        for count in range(1, 10):
            digits = f"{abs(value):.{count}g}"
            try:
                if _SINGLE.unpack(_SINGLE.pack(float(digits)))[0] == abs(value):
                    break
            except OverflowError:  # rounded up beyond the largest float
                continue
    return _float_text(value, digits)


def _float_text(value: float, shortest: str) -> str:
    if isnan(value):
        return "NaN"
    sign = "-" if str(value).startswith("-") else ""
    if not isfinite(value):
        return f"{sign}Infinity"
    if not value:
        return f"{sign}0.0"
    digits, exponent = _scientific(shortest)
    if -3 <= exponent < 7:
        if exponent < 0:
            whole, rest = "0", "0" * (-exponent - 1) + digits
        else:
            padded = digits.ljust(exponent + 2, "0")
            whole, rest = padded[: exponent + 1], padded[exponent + 1 :]
        return f"{sign}{whole}.{rest}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _scientific(shortest: str) -> tuple[str, int]:
    """Return the digits of a number and the power of ten of the first digit."""
    mantissa, _, power = shortest.partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = whole + rest
    exponent = int(power or 0) + len(whole) - 1
    leading = len(digits) - len(digits.lstrip("0"))
    return digits.strip("0") or "0", exponent - leading


def _bytes_text(data: bytes) -> bytes:
    r"""Format bytes like Kafka's `Bytes`: anything but printable ASCII as \xHH."""
    return b"".join(
        bytes([one]) if 32 <= one < 127 and one != 92 else b"\\x%02X" % one for one in data
    )


def _buffer_text(data: bytes) -> bytes:
    return b"java.nio.HeapByteBuffer[pos=0 lim=%d cap=%d]" % (len(data), len(data))


_KNOWN: Final[Mapping[str, ToBytes]] = {
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": _bytes_text,
    "ByteBufferDeserializer": _buffer_text,
    "ShortDeserializer": _printing(SHORT.deserialize, str),
    "IntegerDeserializer": _printing(INT.deserialize, str),
    "LongDeserializer": _printing(LONG.deserialize, str),
    "FloatDeserializer": _printing(FLOAT.deserialize, single_text),
    "DoubleDeserializer": _printing(DOUBLE.deserialize, double_text),
    "BooleanDeserializer": _printing(BOOLEAN.deserialize, _truth),
}
