"""The types of settings: parsing of text and Python objects, and formatting as Kafka does.

Invariant: parse(format(v)) == v for every value v of a type, except that a secret is formatted as
"[hidden]". For invalid text, `parse` raises BadValue and no other exception.
"""

from math import isfinite
from typing import Final, Generic, TypeVar

T = TypeVar("T")

HIDDEN: Final = "[hidden]"

# Java's trim() removes the characters up to U+0020 only; Python's strip() removes more.
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


class BadValue(ValueError):
    """The value is not of the type or not valid; `note` explains it where it is not obvious."""

    def __init__(self, note: str = "") -> None:
        super().__init__(note)
        self.note = note


class Secret:
    """A password or key. str and repr return [hidden]; only `reveal()` returns the value."""

    __slots__ = ("__hidden",)

    def __init__(self, value: str) -> None:
        self.__hidden = value

    def reveal(self) -> str:
        """Return the value. Do not log it or include it in a message."""
        return self.__hidden

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self.__hidden

    def __hash__(self) -> int:
        return hash((Secret, self.__hidden))

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"


class ConfigType(Generic[T]):
    """The type of a setting, with its name and number in DescribeConfigs (KIP-569)."""

    __slots__ = ("code", "name")

    def __init__(self, name: str, code: int) -> None:
        self.name: Final = name
        self.code: Final = code

    def parse(self, text: str) -> T:
        """Parse text from a file, a request or a command line."""
        raise NotImplementedError

    def convert(self, value: object) -> T:
        """Convert a Python object; a str is parsed."""
        if isinstance(value, str):
            return self.parse(value)
        raise BadValue

    def format(self, value: T) -> str:
        """Format the value as Kafka does."""
        return str(value)


class _Boolean(ConfigType[bool]):
    __slots__ = ()

    def parse(self, text: str) -> bool:
        match text.strip(_JAVA_BLANKS).lower():
            case "true":
                return True
            case "false":
                return False
            case _:
                raise BadValue

    def convert(self, value: object) -> bool:
        return value if isinstance(value, bool) else super().convert(value)

    def format(self, value: bool) -> str:
        return "true" if value else "false"


class _Integer(ConfigType[int]):
    __slots__ = ("bits",)

    def __init__(self, name: str, code: int, bits: int) -> None:
        super().__init__(name, code)
        self.bits: Final = bits

    def parse(self, text: str) -> int:
        text = text.strip(_JAVA_BLANKS)
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdecimal()):
            raise BadValue
        # A long has at most 19 digits, and int() is slow for thousands of digits.
        if len(digits.lstrip("0")) > 19:
            raise self._out_of_range()
        return self._bounded(int(text))

    def convert(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return self._bounded(int(value))
        return super().convert(value)

    def _bounded(self, value: int) -> int:
        if -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            return value
        raise self._out_of_range()

    def _out_of_range(self) -> BadValue:
        return BadValue(f"out of range for type {self.name}")


class _Double(ConfigType[float]):
    __slots__ = ()

    def parse(self, text: str) -> float:
        text = text.strip(_JAVA_BLANKS)
        # float() also accepts "nan", "inf" and "1_0"; Kafka does not.
        if not text or text.strip("0123456789+-.eE"):
            raise BadValue
        try:
            return self._finite(float(text))
        except ValueError:
            raise BadValue from None

    def convert(self, value: object) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                return self._finite(float(value))
            except OverflowError:
                raise BadValue from None
        return super().convert(value)

    def format(self, value: float) -> str:
        return _java_double(value)

    @staticmethod
    def _finite(value: float) -> float:
        if isfinite(value):
            return value
        raise BadValue("not a finite number")


class _String(ConfigType[str]):
    __slots__ = ()

    def parse(self, text: str) -> str:
        if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
            raise BadValue("not valid UTF-8")  # undecodable bytes of the command line
        return text.strip(_JAVA_BLANKS)

    def convert(self, value: object) -> str:
        # Accept acks=1.
        if isinstance(value, int) and not isinstance(value, bool):
            return str(int(value))
        return super().convert(value)


class _List(ConfigType[tuple[str, ...]]):
    """Comma-separated entries. As in Kafka 4, duplicates are dropped and empty entries invalid."""

    __slots__ = ()

    def parse(self, text: str) -> tuple[str, ...]:
        if not text.strip(_JAVA_BLANKS):
            return ()
        return self._entries(text.split(","))

    def convert(self, value: object) -> tuple[str, ...]:
        if isinstance(value, (list, tuple)):
            entries: list[str] = []
            for entry in value:  # pyright: ignore[reportUnknownVariableType]
                if not isinstance(entry, str):
                    raise BadValue("entries must be of type str")
                if "," in entry:
                    raise BadValue("entries must not contain a comma")
                entries.append(entry)
            return self._entries(entries)
        return super().convert(value)

    def format(self, value: tuple[str, ...]) -> str:
        return ",".join(value)

    @staticmethod
    def _entries(texts: list[str]) -> tuple[str, ...]:
        entries = tuple(dict.fromkeys(text.strip(_JAVA_BLANKS) for text in texts))
        if "" in entries:
            raise BadValue("empty entry")
        return entries


class _Password(ConfigType[Secret]):
    __slots__ = ()

    def parse(self, text: str) -> Secret:
        return Secret(text.strip(_JAVA_BLANKS))

    def convert(self, value: object) -> Secret:
        return value if isinstance(value, Secret) else super().convert(value)

    def format(self, value: Secret) -> str:
        return HIDDEN


def _java_double(value: float) -> str:
    """Format like Java's Double.toString: 0.5, 1.0E-5, 1.7976931348623157E308."""
    mantissa, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if repr(value).startswith("-") else ""
    if not exponent_text and (value == 0 or 1e-3 <= abs(value) < 1e7):
        return f"{sign}{whole}.{fraction or '0'}"
    digits = (whole + fraction).lstrip("0")
    # The exponent for a decimal point after the first non-zero digit.
    leading_zeros = len(whole + fraction) - len(digits)
    exponent = int(exponent_text or 0) + len(whole) - 1 - leading_zeros
    digits = digits.rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


BOOLEAN: Final[ConfigType[bool]] = _Boolean("boolean", 1)
STRING: Final[ConfigType[str]] = _String("string", 2)
INT: Final[ConfigType[int]] = _Integer("int", 3, 32)
SHORT: Final[ConfigType[int]] = _Integer("short", 4, 16)
LONG: Final[ConfigType[int]] = _Integer("long", 5, 64)
DOUBLE: Final[ConfigType[float]] = _Double("double", 6)
LIST: Final[ConfigType[tuple[str, ...]]] = _List("list", 7)
PASSWORD: Final[ConfigType[Secret]] = _Password("password", 9)

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
