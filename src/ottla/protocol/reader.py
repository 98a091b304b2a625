"""Generates readers: one function per message and version that decodes bytes.

Invariant: a reader accepts only lengths, counts, nulls, varints and tags that the schema allows.
It never allocates for a count that the remaining bytes cannot hold, and never creates more objects
than its budget. For anything else it raises ProtocolViolation, IndexError, struct.error or
UnicodeDecodeError, which `decode` converts to ProtocolViolation.

A reader is one function with all structures inlined, because calls and attribute lookups dominate
the cost. Adjacent values of fixed size, and a length after them, are unpacked by one call.
"""

from collections.abc import Callable
from struct import Struct as Layout
from struct import unpack_from
from typing import Any, Final, NoReturn

from ottla.errors import ProtocolViolation
from ottla.ids import Uuid
from ottla.protocol.function_source import FunctionSource, size_of
from ottla.protocol.primitives import read_uvarint, read_uvarint_rest, skip_tags
from ottla.protocol.schema import Field, Kind, Struct, Versions, parameters

Reader = Callable[[Any, int, int], tuple[Struct, int]]
"""Takes data, position and object budget; returns the value and the position after it.

The data are a memoryview if the message has records, which are not copied; else bytes.
"""

STRING_BYTES_MAX: Final = 0x7FFF

# Shorter arrays are unpacked with a precompiled layout.
SHORT: Final = 17


def compile_reader(cls: type[Struct], version: int, flexible: Versions) -> Reader:
    """Compile the reader of one version of a message."""
    return _ReaderSource(cls, version, version in flexible).compile()


def has_records(cls: type[Struct]) -> bool:
    """Whether a message contains record batches."""
    return any(
        field.kind is Kind.RECORDS or (field.struct is not None and has_records(field.struct))
        for field in cls.FIELDS
    )


def size_min(cls: type[Struct], version: int, *, flexible: bool) -> int:
    """Return the minimum size of a structure in bytes; counts are checked against it."""
    total = 1 if flexible else 0
    for field in cls.FIELDS:
        if version not in field.versions or version in field.tagged:
            continue
        total += _field_size_min(field, version, flexible=flexible)
    return total


def _field_size_min(field: Field, version: int, *, flexible: bool) -> int:
    fixed = field.kind.fixed_size
    if fixed is not None:
        return fixed
    if field.kind is Kind.STRUCT:
        assert field.struct is not None
        nullable = version in field.nullable
        return 1 if nullable else size_min(field.struct, version, flexible=flexible)
    if flexible:
        return 1
    return 2 if field.kind is Kind.STRING else 4


def _null(name: str) -> NoReturn:
    raise ProtocolViolation(f"{name} is null or has a negative length")


def _short(name: str, length: int, left: int) -> NoReturn:
    raise ProtocolViolation(f"{name} has length {length} but {left} bytes remain")


def _long(name: str, length: int) -> NoReturn:
    raise ProtocolViolation(f"{name} has {length} bytes; at most {STRING_BYTES_MAX} are allowed")


class TooManyObjects(ProtocolViolation):
    """The message has more elements than the budget allows."""


def _over_budget(name: str) -> NoReturn:
    raise TooManyObjects(f"{name} exceeds the maximum number of objects of a message")


def _tag_order(tag: int, last: int) -> NoReturn:
    raise ProtocolViolation(f"tag {tag} is not in order after tag {last}")


def _tag_size(name: str) -> NoReturn:
    raise ProtocolViolation(f"{name} does not have the size of its tag")


def _marker(name: str, marker: int) -> NoReturn:
    raise ProtocolViolation(f"{name} has invalid null marker {marker}")


_NAMES: Final[dict[str, object]] = {
    "Uuid": Uuid,
    "new_uuid": bytes.__new__,
    "rest": read_uvarint_rest,
    "uvarint": read_uvarint,
    "skip_tags": skip_tags,
    "unpack_from": unpack_from,
    "null": _null,
    "short": _short,
    "long": _long,
    "over_budget": _over_budget,
    "tag_order": _tag_order,
    "tag_size": _tag_size,
    "marker": _marker,
}


class _ReaderSource:
    """Generates the source of one reader."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._source = FunctionSource("read(data, pos, budget)")
        self._source.names.update(_NAMES)
        self._run: list[tuple[str, str]] = []  # formats and variables to unpack
        self._cls = cls
        self._view = has_records(cls)  # whether the data are a memoryview

    def compile(self) -> Reader:
        self._source.line("end = len(data)")
        value = self._struct(self._cls)
        self._source.line(f"return {value}, pos")
        return self._source.compile()

    def _unpack(self, format_: str) -> str:
        """Add a value of fixed size to the next run; return its variable."""
        variable = self._source.fresh("v")
        self._run.append((format_, variable))
        return variable

    def _flush(self) -> None:
        """Unpack the run."""
        run, self._run = self._run, []
        if not run:
            return
        if run[0][0] == "B" and len(run) == 1:
            self._source.line(f"{run[0][1]} = data[pos]")
            self._source.line("pos += 1")
            return
        formats = "".join(format_ for format_, _ in run)
        layout = self._source.layout(formats, pack=False)
        self._source.line(f"{', '.join(v for _, v in run)}, = {layout}(data, pos)")
        self._source.line(f"pos += {size_of(formats)}")
        for format_, variable in run:
            if format_ == "16s":
                self._source.line(f"{variable} = new_uuid(Uuid, {variable})")

    def _length(self, *, wide: bool) -> str:
        """Read a length or count; null is -1."""
        source = self._source
        length = self._unpack("B" if self._flexible else "i" if wide else "h")
        self._flush()
        if self._flexible:
            with source.block(f"if {length} > 127:"):
                source.line(f"{length}, pos = rest({length}, data, pos)")
            source.line(f"{length} -= 1")
        return length

    def _struct(self, cls: type[Struct]) -> str:
        """Read the fields of a structure; return its variable."""
        values: dict[str, str] = {}
        tagged: list[Field] = []
        for field in cls.FIELDS:
            if self._version in field.tagged:
                tagged.append(field)
            elif self._version in field.versions:
                values[field.name] = self._field(field)
        if self._flexible:
            values.update(self._tags(tagged))
        self._flush()
        constructor = self._source.constant(cls.__name__, cls)
        # Arguments are positional, so fields that the version lacks get their default explicitly.
        arguments = ", ".join(
            values.get(field.name) or self._source.constant("default", field.default)
            for field in parameters(cls)
        )
        value = self._source.fresh("v")
        self._source.line(f"{value} = {constructor}({arguments})")
        return value

    def _field(self, field: Field) -> str:
        if field.kind.fixed_size is not None:
            return self._unpack(field.kind.value)
        if field.kind is Kind.ARRAY:
            return self._array(field)
        if field.kind is Kind.STRUCT:
            return self._struct_field(field)
        return self._text(field.name, field.kind, nullable=self._version in field.nullable)

    def _struct_field(self, field: Field) -> str:
        assert field.struct is not None
        if self._version not in field.nullable:
            return self._struct(field.struct)
        source = self._source
        value = source.fresh("v")
        # The null marker of a tagged structure is a varint, of another one a signed byte.
        in_tag = self._version in field.tagged
        marker = self._unpack("B" if in_tag else "b")
        self._flush()
        with source.block(f"if {marker} == {0 if in_tag else -1}:"):
            source.line(f"{value} = None")
        with source.block("else:"):
            source.line(f"if {marker} != 1: marker({field.name!r}, {marker})")
            source.line(f"{value} = {self._struct(field.struct)}")
        return value

    def _text(self, name: str, kind: Kind, *, nullable: bool) -> str:
        """Read a string, bytes or records."""
        source = self._source
        length = self._length(wide=kind is not Kind.STRING)
        value, stop = source.fresh("v"), source.fresh("stop")
        with source.block(f"if {length} < 0:"):
            if nullable:
                source.line(f"if {length} != -1: null({name!r})")
                source.line(f"{value} = None")
            else:
                source.line(f"null({name!r})")
        with source.block("else:"):
            source.line(f"{stop} = pos + {length}")
            source.line(f"if {stop} > end: short({name!r}, {length}, end - pos)")
            match kind:
                case Kind.STRING:
                    if self._flexible:
                        source.line(f"if {length} > {STRING_BYTES_MAX}: long({name!r}, {length})")
                    text = "str({}, 'utf-8')" if self._view else "{}.decode()"
                    source.line(f"{value} = {text.format(f'data[pos:{stop}]')}")
                case Kind.BYTES if self._view:
                    source.line(f"{value} = bytes(data[pos:{stop}])")
                case _:
                    source.line(f"{value} = data[pos:{stop}]")
            source.line(f"pos = {stop}")
        return value

    def _array(self, field: Field) -> str:
        source = self._source
        count = self._length(wide=True)
        value = source.fresh("v")
        with source.block(f"if {count} < 0:"):
            if self._version in field.nullable:
                source.line(f"if {count} != -1: null({field.name!r})")
                source.line(f"{value} = None")
            else:
                source.line(f"null({field.name!r})")
        with source.block("else:"):
            assert field.element is not None
            if field.element.fixed_size is not None:
                self._fixed_elements(field, count, value)
            else:
                self._elements(field, count, value)
        return value

    def _charge(self, field: Field, count: str, element_size: int) -> None:
        """Check a count against the remaining bytes and the budget."""
        source = self._source
        if element_size:
            needed = count if element_size == 1 else f"{count} * {element_size}"
            source.line(f"if {needed} > end - pos: short({field.name!r}, {count}, end - pos)")
        source.line(f"budget -= {count}")
        source.line(f"if budget < 0: over_budget({field.name!r})")

    def _fixed_elements(self, field: Field, count: str, value: str) -> None:
        source = self._source
        assert field.element is not None
        size = field.element.fixed_size
        assert size is not None
        layouts = f"short_{field.element.name}"
        if layouts not in source.names:
            format_ = field.element.value
            source.names[layouts] = tuple(
                Layout(">" + format_ * n).unpack_from for n in range(SHORT)
            )
        source.line(f"budget -= {count}")
        source.line(f"if budget < 0: over_budget({field.name!r})")
        with source.block(f"if {count} < {SHORT}:"):
            source.line(f"{value} = {layouts}[{count}](data, pos)")
        with source.block("else:"):
            source.line(
                f"if {count} * {size} > end - pos: short({field.name!r}, {count}, end - pos)"
            )
            formats = f'f">{{{count}}}{field.element.value}"'
            source.line(f"{value} = unpack_from({formats}, data, pos)")
        source.line(f"pos += {count} * {size}")

    def _elements(self, field: Field, count: str, value: str) -> None:
        source = self._source
        if field.struct is not None:
            smallest = size_min(field.struct, self._version, flexible=self._flexible)
        else:
            smallest = 1 if self._flexible else 2
        self._charge(field, count, smallest)
        items = source.fresh("items")
        source.line(f"{items} = []")
        with source.block(f"for _ in range({count}):"):
            if field.struct is not None:
                item = self._struct(field.struct)
            else:
                item = self._text(field.name, Kind.STRING, nullable=False)
            source.line(f"{items}.append({item})")
        source.line(f"{value} = tuple({items})")

    def _tags(self, fields: list[Field]) -> dict[str, str]:
        """Read the tagged fields; return the variables of the known ones."""
        source = self._source
        count = self._unpack("B")
        self._flush()
        if not fields:
            source.line(f"if {count}: pos, budget = skip_tags(data, pos, {count}, budget)")
            return {}
        values: dict[str, str] = {}
        for field in fields:
            values[field.name] = value = source.fresh("v")
            default = source.constant("default", field.default)
            source.line(f"{value} = {default}{'()' if field.fresh else ''}")
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > 127:"):
                source.line(f"{count}, pos = rest({count}, data, pos)")
            source.line(f"if {count} * 2 > end - pos: short('tags', {count}, end - pos)")
            source.line(f"budget -= {count}")
            source.line("if budget < 0: over_budget('tags')")
            last, tag, size, stop = (source.fresh(s) for s in ("last", "tag", "size", "stop"))
            source.line(f"{last} = -1")
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, pos = uvarint(data, pos)")
                source.line(f"if {tag} <= {last}: tag_order({tag}, {last})")
                source.line(f"{last} = {tag}")
                source.line(f"{size}, pos = uvarint(data, pos)")
                source.line(f"{stop} = pos + {size}")
                source.line(f"if {stop} > end: short('tag', {size}, end - pos)")
                self._known_tags(fields, values, tag, stop)
        return values

    def _known_tags(self, fields: list[Field], values: dict[str, str], tag: str, stop: str) -> None:
        source = self._source
        for number, field in enumerate(fields):
            with source.block(f"{'el' if number else ''}if {tag} == {field.tag}:"):
                variable = self._field(field)
                self._flush()
                source.line(f"{values[field.name]} = {variable}")
                source.line(f"if pos != {stop}: tag_size({field.name!r})")
        with source.block("else:"):
            source.line(f"pos = {stop}")
