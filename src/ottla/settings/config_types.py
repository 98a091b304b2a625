"""The types of settings: from text and from Python to a value, and back to Kafka's text.

Invariant: for every kind and every value v that it can hold, parse(format(v)) == v, except that
the text of a secret is always "[hidden]". A text that a kind refuses raises BadValue and
nothing else, whatever the text.
"""

from math import isfinite
from typing import Final, Generic, TypeVar

T = TypeVar("T")

HIDDEN: Final = "[hidden]"

# Java trims every character up to the space, Python's strip() knows many more.
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


class BadValue(ValueError):
    """The value does not fit the type or the range; `note` says why where that is not obvious."""

    def __init__(self, note: str = "") -> None:
        super().__init__(note)
        self.note = note


class Secret:
    """A password or key that shows itself only to `reveal()`: not in repr, str or a format."""

    __slots__ = ("__hidden",)

    def __init__(self, value: str) -> None:
        self.__hidden = value

    def reveal(self) -> str:
        """The value itself. Never log it, never put it into a message."""
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
    """The type of a setting, named and numbered as DescribeConfigs does (KIP-569)."""

    __slots__ = ("code", "name")

    def __init__(self, name: str, code: int) -> None:
        self.name: Final = name
        self.code: Final = code

    def parse(self, text: str) -> T:
        """The value of a text from a file, a request or a command line."""
        raise NotImplementedError

    def convert(self, value: object) -> T:
        """The value of a Python object; a str is parsed as text."""
        if isinstance(value, str):
            return self.parse(value)
        raise BadValue

    def format(self, value: T) -> str:
        """The text as Kafka writes it."""
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
        # No long has more digits than this, and int() is slow on thousands of them.
        if len(digits.lstrip("0")) > 19:
            raise self._beyond()
        return self._bounded(int(text))

    def convert(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return self._bounded(int(value))
        return super().convert(value)

    def _bounded(self, value: int) -> int:
        if -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            return value
        raise self._beyond()

    def _beyond(self) -> BadValue:
        return BadValue(f"beyond the {self.bits} bits of the type {self.name}")


class _Double(ConfigType[float]):
    __slots__ = ()

    def parse(self, text: str) -> float:
        text = text.strip(_JAVA_BLANKS)
        # float() also takes "nan", "inf" and "1_0"; no setting means any of them.
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
            raise BadValue("it is no UTF-8")  # a byte of the command line that was none
        return text.strip(_JAVA_BLANKS)

    def convert(self, value: object) -> str:
        # acks=1 is what people write, so a number stands for its digits.
        if isinstance(value, int) and not isinstance(value, bool):
            return str(int(value))
        return super().convert(value)


class _List(ConfigType[tuple[str, ...]]):
    """Entries between commas. As in Kafka 4 a repeated entry counts once, an empty one is wrong."""

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
                    raise BadValue("an entry is not a str")
                if "," in entry:
                    raise BadValue("a comma inside an entry")
                entries.append(entry)
            return self._entries(entries)
        return super().convert(value)

    def format(self, value: tuple[str, ...]) -> str:
        return ",".join(value)

    @staticmethod
    def _entries(texts: list[str]) -> tuple[str, ...]:
        entries = tuple(dict.fromkeys(text.strip(_JAVA_BLANKS) for text in texts))
        if "" in entries:
            raise BadValue("an empty entry")
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
    """The text that Java's Double.toString gives: 0.5, 1.0E-5, 1.7976931348623157E308."""
    mantissa, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if repr(value).startswith("-") else ""
    if not exponent_text and (value == 0 or 1e-3 <= abs(value) < 1e7):
        return f"{sign}{whole}.{fraction or '0'}"
    digits = (whole + fraction).lstrip("0")
    # The exponent that puts the point behind the first digit that is not zero.
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
