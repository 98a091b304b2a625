"""Values of JSON or Avro as typed columns.

Invariant: a value is read whole or refused, and one that is refused is named by its partition and
offset; rows keep their order. JSON costs no Python object per record; of Avro they live for a few
hundred rows at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, cast

from ottla.client.columns.arrow import consumed
from ottla.client.columns.avro_types import arrow_type, plain_uuids
from ottla.client.serializers import DeserializationFailed
from ottla.client.serializers.avro_schema import schema_of
from ottla.client.serializers.documents import avro
from ottla.ids import TopicPartition
from ottla.records import Columns
from ottla.records.arrow import pyarrow_module

PLACE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key")
"""What is told of each record beside its value."""

AVRO_ROWS: Final = 500

_NO_OBJECT: Final = "this is no JSON object"
_EMPTY: Final = "The document is empty"
_NO_NUMBER: Final = "changed from number to string"
_SCHEMAS: Final = (
    "value_schema is a pyarrow.Schema for JSON, or an Avro schema as its JSON's text or as a dict"
)


class Form(Protocol):
    """How values are read."""

    names: list[str]

    def read(self, values: Any) -> list[Any]:
        """A column of each name, of an array of bytes; ValueError when one value is bad."""
        ...


def form_of(schema: Any) -> Form:
    """The form of a schema: of Arrow for JSON; of Avro as text or as Python has its JSON."""
    pa = pyarrow_module()
    if isinstance(schema, pa.Schema):
        return _Json(schema)
    if not isinstance(schema, str | Mapping):
        raise TypeError(f"{_SCHEMAS}; this is {type(schema).__name__}")
    try:
        found: Any = schema_of(cast("str | Mapping[str, object]", schema))
        return _Avro(found if isinstance(found, Mapping) else {"type": found})
    except ImportError:
        raise
    # What a parser raises for what is no schema is anything.
    except Exception as error:
        raise ValueError(f"{_SCHEMAS}; this is none of Avro: {_why(error)}") from error


def typed(
    form: Form,
    bad_record: Callable[[DeserializationFailed], object] | None,
    partition: TopicPartition,
    columns: Columns,
) -> tuple[Any, DeserializationFailed | None]:
    """Where records are, their keys and the columns of their values; and what ended them too early.

    With `bad_record` that is told of each value that cannot be read, and its row is left out.
    """
    pa = pyarrow_module()
    whole = consumed(partition, columns)
    values = whole.column("value")
    places = whole.select(PLACE_COLUMNS)
    names = [*PLACE_COLUMNS, *form.names]
    parts: list[Any] = []
    failure: DeserializationFailed | None = None
    for start, stop, found in _runs(form, values, 0, len(values)):
        if isinstance(found, ValueError):
            offset = whole.column("offset")[start].as_py()
            data = values[start].as_py() or b""
            failed = DeserializationFailed(*partition, offset, "value", data, str(found))
            failed.__cause__ = found
            if bad_record is None:
                failure = failed
                break
            bad_record(failed)
            continue
        arrays = [*places.slice(start, stop - start).columns, *found]
        parts.append(pa.RecordBatch.from_arrays(arrays, names=names))
    if len(parts) > 1:
        parts = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return (parts[0] if parts else None), failure


def _runs(
    form: Form, values: Any, start: int, stop: int
) -> Iterator[tuple[int, int, list[Any] | ValueError]]:
    """Rows that can be read together, and between them those that cannot, one by one.

    What fails is halved, so that few bad rows cost little more than none.
    """
    try:
        found = form.read(values.slice(start, stop - start))
    except ValueError as error:
        if stop - start == 1:
            yield start, stop, error
            return
    else:
        yield start, stop, found
        return
    middle = (start + stop) // 2
    yield from _runs(form, values, start, middle)
    yield from _runs(form, values, middle, stop)


def _names(given: list[str]) -> list[str]:
    """The names of a value's columns; one that the record has too is told apart."""
    names = [f"value.{name}" if name in PLACE_COLUMNS else name for name in given]
    if len({*names}) < len(names):
        raise ValueError(f"value_schema has a name twice: {', '.join(names)}")
    return names


class _Json:
    """Objects of JSON, by a schema of Arrow."""

    def __init__(self, schema: Any) -> None:
        pa = pyarrow_module()
        self.names = _names(schema.names)
        self._schema = schema.remove_metadata()
        self._has_dates = any(map(pa.types.is_date, schema.types))
        if strict := [field.name for field in schema if not field.nullable]:
            raise ValueError(
                f"value_schema has fields that are not nullable ({', '.join(strict)}), but of a "
                "record without a value all are null"
            )
        try:
            self.read(pa.nulls(1, pa.binary()))
        except (ValueError, NotImplementedError) as error:
            raise ValueError(f"value_schema cannot be read from JSON: {error}") from error

    def read(self, values: Any) -> list[Any]:
        """The fields of objects; those that are missing are null, those unknown are left out."""
        pa = pyarrow_module()
        import pyarrow.compute
        import pyarrow.json

        compute: Any = pyarrow.compute
        json: Any = pyarrow.json
        if not len(values):
            return [pa.nulls(0, kind) for kind in self._schema.types]
        # The parser reads one object after the other out of one text, and does not look where a
        # value ends. But what begins with { and ends with } cannot be joined with its neighbour to
        # one object, for } is never followed by {. So there are as many objects as values exactly
        # when each value is one.
        text = _braced(values.cast(pa.utf8()))  # nor does it look whether text is UTF-8
        joined = compute.binary_join_element_wise(
            text,
            "",
            "\n",  # between them, so it ends each line
            null_handling="replace",
            null_replacement="{}",
        )
        data = joined.buffers()[2]
        try:
            lines = json.read_json(
                pa.BufferReader(data),
                read_options=json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except ValueError as error:
            if _EMPTY in str(error):  # so it calls what cannot begin an object, behind another
                raise ValueError(f"{_NO_OBJECT}, or more than that") from error
            if self._has_dates and _NO_NUMBER in str(error):
                raise ValueError(
                    f"{error}; a date is read from its number of days since 1970, and text as "
                    "2024-01-01 by a field of pyarrow.timestamp('s')"
                ) from error
            raise
        if lines.num_rows != len(values):
            raise ValueError("this is more than one JSON object")
        return [column.combine_chunks() for column in lines.columns]


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _braced(text: Any) -> Any:
    """Texts that begin with { and end with }, and nulls; ValueError when one is neither."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    for is_trimmed in (False, True):
        if is_trimmed:  # few are written with space around them, or as null
            text = compute.utf8_trim(text, characters=" \t\r\n")
            text = compute.if_else(compute.equal(text, "null"), None, text)
        braced = compute.and_(compute.starts_with(text, "{"), compute.ends_with(text, "}"))
        if compute.all(braced).as_py() is not False:  # of nothing but nulls it is null
            return text
    raise ValueError(_NO_OBJECT)


class _Avro:
    """Avro's binary form."""

    def __init__(self, schema: Any) -> None:
        pa = pyarrow_module()
        self._read = avro(plain_uuids(schema)).deserialize
        self._type = arrow_type(schema)
        self._is_record = pa.types.is_struct(self._type)
        fields = [self._type.field(number).name for number in range(self._type.num_fields)]
        self.names = _names(fields) if self._is_record else ["value"]

    def read(self, values: Any) -> list[Any]:
        """The fields of records, or what else the schema says as one column."""
        pa = pyarrow_module()
        parts = [pa.array([], self._type)]
        for start in range(0, len(values), AVRO_ROWS):
            data = values.slice(start, AVRO_ROWS).to_pylist()
            try:
                rows = [None if one is None else self._read("", one) for one in data]
                parts.append(pa.array(rows, self._type))
            # What a reader raises for bytes of another schema is anything.
            except Exception as error:
                raise ValueError(f"this is not of the Avro schema: {_why(error)}") from error
        array = pa.concat_arrays(parts)
        return array.flatten() if self._is_record else [array]
