"""The schema language of messages: a class whose fields are rows with version ranges.

One class serves all versions of a message. The row of a field declares its type, versions, tag and
default; readers and writers are generated from the rows.

    class HeartbeatRequest(Message, api=HEARTBEAT):
        group_id: str = string("0+")
        generation_id: int = int32("0+")
        member_id: str = string("0+")
        group_instance_id: str | None = nullable_string("3+", default=None)

A field that all versions have is a required argument of the constructor. A field that some versions
lack has a default, which a reader of such a version returns. Readers return arrays as tuples;
writers accept any sequence.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
    dataclass_transform,
    overload,
)

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.primitives import Buffer

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

VERSION_MAX: Final = 0x7FFF


class Versions(NamedTuple):
    """A range of versions, both ends inclusive; empty if high is less than low."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __str__(self) -> str:
        if self.high < self.low:
            return "none"
        if self.high == VERSION_MAX:
            return f"{self.low}+"
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse a range: "3", "0-4", "2+" or "none"."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))


NEVER: Final = Versions(0, -1)


class Kind(Enum):
    """The wire types; the value is the struct format of types of fixed size."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"
    ARRAY = "array"

    @property
    def fixed_size(self) -> int | None:
        """The size of a value in bytes; None if it is variable."""
        return _FIXED_SIZES.get(self)


_FIXED_SIZES: Final = {
    Kind.BOOL: 1,
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.INT32: 4,
    Kind.UINT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.UUID: 16,
}


class Field:
    """One field: type, versions, tag and default."""

    __slots__ = (
        "default",
        "element",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "required",
        "struct",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self,
        kind: Kind,
        versions: str,
        row: Mapping[str, Any],  # Any: see the typed dictionaries below
        element: Kind | None = None,
        struct: "type[Struct] | None" = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.element = element
        self.struct = struct
        self.versions = Versions.parse(versions)
        self.nullable = Versions.parse(row.get("nullable", "none"))
        self.tag: int | None = row.get("tag")
        # A field with a tag is tagged in all its versions, unless `tagged` restricts them.
        self.tagged = NEVER if self.tag is None else Versions.parse(row.get("tagged", versions))
        self.ignorable: bool = row.get("ignorable", False)
        self.required = "default" not in row and "factory" not in row
        self.default: object = row.get("factory", row.get("default", _ZEROS.get(kind)))

    @property
    def fresh(self) -> bool:
        """Whether the default is a structure, which is created for each message."""
        return self.kind is Kind.STRUCT and self.default is not None

    def __repr__(self) -> str:
        return f"<{self.name}: {self.kind.name.lower()} {self.versions}>"


_ZEROS: Final[dict[Kind, object]] = {
    Kind.BOOL: False,
    Kind.INT8: 0,
    Kind.INT16: 0,
    Kind.INT32: 0,
    Kind.UINT32: 0,
    Kind.INT64: 0,
    Kind.FLOAT64: 0.0,
    Kind.UUID: ZERO_UUID,
    Kind.STRING: "",
    Kind.BYTES: b"",
    Kind.RECORDS: b"",
    Kind.ARRAY: (),
}


class Element(Generic[T]):
    """The element type of an array of primitive values."""

    __slots__ = ("kind",)

    def __init__(self, kind: Kind) -> None:
        self.kind = kind


INT8S: Final = Element[int](Kind.INT8)
INT32S: Final = Element[int](Kind.INT32)
INT64S: Final = Element[int](Kind.INT64)
STRINGS: Final = Element[str](Kind.STRING)


class _Row(TypedDict, total=False):
    """Options of a field, without the default."""

    tag: int
    tagged: str
    ignorable: bool


class _Bool(_Row, total=False):
    default: bool


class _Int(_Row, total=False):
    default: int


class _Float(_Row, total=False):
    default: float


class _Uuid(_Row, total=False):
    default: Uuid


class _String(_Row, total=False):
    default: str


class _Bytes(_Row, total=False):
    default: bytes


class _Array(_Row, total=False):
    default: tuple[()]


# To the type checker a row has the type of the field, so that a wrong annotation is an error. At
# run time it is a Field, which StructType removes from the class.


def boolean(versions: str, **row: Unpack[_Bool]) -> bool:
    """One byte; any value except 0 is true."""
    return _row(Kind.BOOL, versions, row)


def int8(versions: str, **row: Unpack[_Int]) -> int:
    """One byte, signed."""
    return _row(Kind.INT8, versions, row)


def int16(versions: str, **row: Unpack[_Int]) -> int:
    """Two bytes, signed, big-endian."""
    return _row(Kind.INT16, versions, row)


def int32(versions: str, **row: Unpack[_Int]) -> int:
    """Four bytes, signed."""
    return _row(Kind.INT32, versions, row)


def uint32(versions: str, **row: Unpack[_Int]) -> int:
    """Four bytes, unsigned."""
    return _row(Kind.UINT32, versions, row)


def int64(versions: str, **row: Unpack[_Int]) -> int:
    """Eight bytes, signed."""
    return _row(Kind.INT64, versions, row)


def float64(versions: str, **row: Unpack[_Float]) -> float:
    """Eight bytes, IEEE 754."""
    return _row(Kind.FLOAT64, versions, row)


def uuid(versions: str, **row: Unpack[_Uuid]) -> Uuid:
    """Sixteen bytes."""
    return _row(Kind.UUID, versions, row)


def string(versions: str, **row: Unpack[_String]) -> str:
    """A length and UTF-8 text of at most 32,767 bytes."""
    return _row(Kind.STRING, versions, row)


@overload
def nullable_string(
    versions: str, *, nullable: str = "0+", default: str | None, **row: Unpack[_Row]
) -> str | None: ...
@overload
def nullable_string(versions: str, *, nullable: str = "0+", **row: Unpack[_Row]) -> str | None: ...
def nullable_string(versions: str, *, nullable: str = "0+", **row: Any) -> str | None:
    """A string that can be null in the versions of `nullable`."""
    return _row(Kind.STRING, versions, row | {"nullable": nullable})


def octets(versions: str, **row: Unpack[_Bytes]) -> bytes:
    """A length and bytes."""
    return _row(Kind.BYTES, versions, row)


@overload
def nullable_octets(
    versions: str, *, nullable: str = "0+", default: bytes | None, **row: Unpack[_Row]
) -> bytes | None: ...
@overload
def nullable_octets(
    versions: str, *, nullable: str = "0+", **row: Unpack[_Row]
) -> bytes | None: ...
def nullable_octets(versions: str, *, nullable: str = "0+", **row: Any) -> bytes | None:
    """Bytes that can be null in the versions of `nullable`."""
    return _row(Kind.BYTES, versions, row | {"nullable": nullable})


def nullable_records(versions: str, *, nullable: str = "0+") -> Buffer | None:
    """A length and record batches, which are not decoded or copied."""
    return _row(Kind.RECORDS, versions, {"nullable": nullable})


@overload
def array(element: type[S], versions: str, **row: Unpack[_Array]) -> Sequence[S]: ...
@overload
def array(element: Element[T], versions: str, **row: Unpack[_Array]) -> Sequence[T]: ...
def array(element: type[Any] | Element[Any], versions: str, **row: Any) -> Sequence[Any]:
    """A count and that many structures or primitive values."""
    return _array_row(element, versions, row)


@overload
def nullable_array(
    element: type[S],
    versions: str,
    *,
    nullable: str = "0+",
    default: tuple[()] | None,
    **row: Unpack[_Row],
) -> Sequence[S] | None: ...
@overload
def nullable_array(
    element: Element[T],
    versions: str,
    *,
    nullable: str = "0+",
    default: tuple[()] | None,
    **row: Unpack[_Row],
) -> Sequence[T] | None: ...
@overload
def nullable_array(
    element: type[S], versions: str, *, nullable: str = "0+", **row: Unpack[_Row]
) -> Sequence[S] | None: ...
@overload
def nullable_array(
    element: Element[T], versions: str, *, nullable: str = "0+", **row: Unpack[_Row]
) -> Sequence[T] | None: ...
def nullable_array(
    element: type[Any] | Element[Any], versions: str, *, nullable: str = "0+", **row: Any
) -> Sequence[Any] | None:
    """An array that can be null in the versions of `nullable`."""
    return _array_row(element, versions, row | {"nullable": nullable})


def struct(cls: type[S], versions: str, **row: Unpack[_Row]) -> S:
    """A nested structure."""
    return _row(Kind.STRUCT, versions, row, struct=cls)


def tagged_struct(
    cls: type[S], versions: str, *, tag: int, default: None, ignorable: bool = False
) -> S | None:
    """A tagged structure; None and a structure of defaults are not sent."""
    row = {"tag": tag, "default": default, "ignorable": ignorable}
    return _row(Kind.STRUCT, versions, row, struct=cls)


class _Made(_Row, total=False):
    factory: "type[Struct]"


@overload
def nullable_struct(
    cls: type[S], versions: str, *, nullable: str = "0+", default: None, **row: Unpack[_Row]
) -> S | None: ...
@overload
def nullable_struct(
    cls: type[S], versions: str, *, nullable: str = "0+", **row: Unpack[_Made]
) -> S | None: ...
def nullable_struct(cls: type[S], versions: str, *, nullable: str = "0+", **row: Any) -> S | None:
    """A null marker and a nested structure."""
    return _row(Kind.STRUCT, versions, row | {"nullable": nullable}, struct=cls)


def _row(
    kind: Kind,
    versions: str,
    row: Mapping[str, Any],
    element: Kind | None = None,
    struct: "type[Struct] | None" = None,
) -> Any:  # Any: see above
    return Field(kind, versions, row, element, struct)


def _array_row(element: type[Any] | Element[Any], versions: str, row: Mapping[str, Any]) -> Any:
    if isinstance(element, Element):
        return _row(Kind.ARRAY, versions, row, element.kind)
    return _row(Kind.ARRAY, versions, row, Kind.STRUCT, element)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        nullable_string,
        octets,
        nullable_octets,
        nullable_records,
        array,
        nullable_array,
        struct,
        tagged_struct,
        nullable_struct,
    ),
)
class StructType(type):
    """Metaclass that turns the rows of a class into slots, in order of declaration."""

    def __new__(  # noqa: D102
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **header: Any
    ) -> "StructType":
        fields: list[Field] = []
        for key in list(namespace):
            value = namespace[key]
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **header)


class Struct(metaclass=StructType):
    """A structure of a message."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The constructor is compiled on first use, so that importing all messages stays fast.
        cls = type(self)
        constructor = _constructor(cls)
        cls.__init__ = constructor
        constructor(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS)
        return f"{type(self).__name__}({values})"


def parameters(cls: type[Struct]) -> list[Field]:
    """Return the rows in the order of the constructor's parameters: required ones first."""
    return sorted(cls.FIELDS, key=lambda field: not field.required)


def _constructor(cls: type[Struct]) -> Any:  # Any: a generated function
    """Compile an __init__ with a parameter for each row.

    To the type checker all parameters are keywords. Readers pass them by position, which avoids a
    dictionary per object.
    """
    names: dict[str, object] = {}
    signature = ["self"]
    lines: list[str] = []
    for field in parameters(cls):
        name, default = field.name, f"default_{field.name}"
        names[default] = field.default
        signature.append(name if field.required else f"{name}={default}")
        fresh = f" if {name} is not {default} else {default}()" if field.fresh else ""
        lines.append(f" self.{name} = {name}{fresh}")
    source = f"def __init__({', '.join(signature)}):\n" + ("\n".join(lines) or " pass")
    exec(compile(source, "<constructor>", "exec"), names)
    return names["__init__"]
