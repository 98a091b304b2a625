"""Validators of setting values: ranges, choices and formats.

Invariant: str(validator) is the text of Kafka's documentation. `validate` returns the canonical
spelling of a value or raises BadValue; validate(validate(v)) == validate(v).
"""

import re
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from ottla.settings.config_types import DOUBLE, BadValue

T = TypeVar("T")
N = TypeVar("N", int, float)


class Validator(Generic[T]):
    """Validates values of one type; str() is its text in the reference and in error messages."""

    __slots__ = ("_printed",)

    def __init__(self, printed: str) -> None:
        self._printed: Final = printed

    def validate(self, value: T) -> T:
        """Return the value in its canonical spelling. Raises BadValue."""
        raise NotImplementedError

    def expected(self, kind: str) -> str:
        """Describe the valid values of a type of settings, for error messages."""
        return f"{kind}, {self}"

    def __str__(self) -> str:
        return self._printed


class _Range(Validator[N]):
    __slots__ = ("high", "low")

    def __init__(self, low: N, high: N | None) -> None:
        super().__init__(f"[{low},...]" if high is None else f"[{low},...,{high}]")
        self.low: Final = low
        self.high: Final = high

    def validate(self, value: N) -> N:
        if value < self.low or (self.high is not None and value > self.high):
            raise BadValue
        return value

    def expected(self, kind: str) -> str:
        noun = "a number" if kind == DOUBLE.name else "an integer"
        if self.high is None:
            return f"{noun} of at least {self.low}"
        return f"{noun} from {self.low} to {self.high}"


class _RangeOr(Validator[int]):
    """A range, and one special number outside it."""

    __slots__ = ("range", "special")

    def __init__(self, inside: Validator[int], special: int) -> None:
        super().__init__(f"{inside} or {special}")
        self.range: Final = inside
        self.special: Final = special

    def validate(self, value: int) -> int:
        return value if value == self.special else self.range.validate(value)

    def expected(self, kind: str) -> str:
        return f"{self.range.expected(kind)}, or {self.special}"


class _Choice(Validator[str]):
    __slots__ = ("any_case", "choices", "otherwise")

    def __init__(
        self,
        names: tuple[str, ...],
        aliases: Mapping[str, str],
        *,
        any_case: bool,
        otherwise: str = "",
    ) -> None:
        printed = ", ".join(name or "(empty)" for name in names)
        super().__init__(f"(case insensitive) [{printed}]" if any_case else f"[{printed}]")
        spelled = {name: name for name in names} | dict(aliases)
        self.any_case: Final = any_case
        self.otherwise: Final = otherwise
        self.choices: Final[Mapping[str, str]] = (
            {name.lower(): usual for name, usual in spelled.items()} if any_case else spelled
        )

    def validate(self, value: str) -> str:
        try:
            return self.choices[value.lower() if self.any_case else value]
        except KeyError:
            raise BadValue(self.otherwise) from None


class _ListOf(Validator[tuple[str, ...]]):
    __slots__ = ("each", "empty_allowed")

    def __init__(self, each: Validator[str], *, empty_allowed: bool) -> None:
        super().__init__(str(each))
        self.each: Final = each
        self.empty_allowed: Final = empty_allowed

    def validate(self, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value and not self.empty_allowed:
            raise BadValue("empty list")
        return tuple(dict.fromkeys(self.each.validate(entry) for entry in value))


class _NonEmptyString(Validator[str]):
    __slots__ = ()

    def validate(self, value: str) -> str:
        if not value:
            raise BadValue
        return value

    def expected(self, kind: str) -> str:
        return f"a {self}"


class _ListSize(Validator[tuple[str, ...]]):
    __slots__ = ("high", "low")

    def __init__(self, printed: str, low: int, high: int | None = None) -> None:
        super().__init__(printed)
        self.low: Final = low
        self.high: Final = high

    def validate(self, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) < self.low or (self.high is not None and len(value) > self.high):
            raise BadValue
        return value

    def expected(self, kind: str) -> str:
        return f"a {self}" if self.low else f"a list with {self}"


class _Matching(Validator[str]):
    __slots__ = ("pattern",)

    def __init__(self, pattern: str, printed: str) -> None:
        super().__init__(printed)
        self.pattern: Final = pattern  # compiled on first use

    def validate(self, value: str) -> str:
        if re.fullmatch(self.pattern, value) is None:
            raise BadValue
        return value


class _ThrottledReplicas(Validator[tuple[str, ...]]):
    __slots__ = ()

    def validate(self, value: tuple[str, ...]) -> tuple[str, ...]:
        if value != ("*",) and not all(re.fullmatch("[0-9]+:[0-9]+", each) for each in value):
            raise BadValue
        return value


class _OffsetReset(Validator[str]):
    __slots__ = ()

    def validate(self, value: str) -> str:
        lowered = value.lower()
        if lowered in ("latest", "earliest", "none"):
            return lowered
        if not lowered.startswith(BY_DURATION):
            raise BadValue
        duration = value[len(BY_DURATION) :]
        duration_ms(duration)
        return BY_DURATION + duration


BY_DURATION: Final = "by_duration:"

_DURATION: Final = (
    r"P(?:(\d{1,19})D)?(T(?:(\d{1,19})H)?(?:(\d{1,19})M)?(?:(\d{1,19})(?:[.,](\d{0,9}))?S)?)?"
)


def duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration such as PT1H or P1DT0.5S to milliseconds. Raises BadValue."""
    found = re.fullmatch(_DURATION, text, re.IGNORECASE | re.ASCII)
    if found is None or text[-1] in "PpTt":
        raise BadValue("not an ISO 8601 duration such as PT1H or P1DT12H")
    days, _, hours, minutes, seconds, fraction = found.groups()
    whole_seconds = (
        int(days or 0) * 86_400
        + int(hours or 0) * 3600
        + int(minutes or 0) * 60
        + int(seconds or 0)
    )
    total_ms = whole_seconds * 1000 + int((fraction or "").ljust(3, "0")[:3])
    if total_ms >= 1 << 63:
        raise BadValue("duration too long")
    return total_ms


def at_least(low: N) -> Validator[N]:
    """Accept numbers from `low` on."""
    return _Range(low, None)


def between(low: N, high: N) -> Validator[N]:
    """Accept numbers from `low` to `high`, inclusive."""
    return _Range(low, high)


def range_or(inside: Validator[int], special: int) -> Validator[int]:
    """Accept a range or one special number."""
    return _RangeOr(inside, special)


def one_of(
    *names: str,
    any_case: bool = False,
    aliases: Mapping[str, str] | None = None,
    otherwise: str = "",
) -> Validator[str]:
    """Accept one of the names; an alias is replaced by its name.

    `otherwise` is the hint of the error for any other value.
    """
    return _Choice(names, aliases or {}, any_case=any_case, otherwise=otherwise)


def some_of(
    *names: str,
    any_case: bool = False,
    aliases: Mapping[str, str] | None = None,
    empty_allowed: bool = True,
) -> Validator[tuple[str, ...]]:
    """Accept a list of these names."""
    choice = one_of(*names, any_case=any_case, aliases=aliases)
    return _ListOf(choice, empty_allowed=empty_allowed)


def list_of(each: Validator[str]) -> Validator[tuple[str, ...]]:
    """Accept a list of valid entries, which may be empty."""
    return _ListOf(each, empty_allowed=True)


def matching(pattern: str, printed: str) -> Validator[str]:
    """Accept text that matches a regular expression; `printed` describes it."""
    return _Matching(pattern, printed)


NON_EMPTY: Final[Validator[str]] = _NonEmptyString("non-empty string")
NON_EMPTY_LIST: Final[Validator[tuple[str, ...]]] = _ListSize("non-empty list", 1)
THROTTLED_REPLICAS: Final[Validator[tuple[str, ...]]] = _ThrottledReplicas(
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)
OFFSET_RESET: Final[Validator[str]] = _OffsetReset(
    f"[latest, earliest, none, {BY_DURATION}PnDTnHnMn.nS]"
)
