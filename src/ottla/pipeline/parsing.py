"""Parses the records of a source to rows, on Spark.

Invariant: every record is either a row, or has an error that says why it is not one. Spark parses
the value of a record once, however many columns and conditions use it.
"""

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from ottla.pipeline.columns import PARSED, UNPARSED
from ottla.pipeline.spec.avro_schema import avro_ddl
from ottla.pipeline.spec.model import Source
from ottla.pipeline.spec.schema_ddl import Column as SchemaColumn
from ottla.pipeline.spec.schema_ddl import parse_columns

ERROR: Final = "_error"
"""The column with the error of a record; null for a row."""
ROW: Final = "_row"
"""The column with the parsed columns, as a struct."""
UNKNOWN_FIELDS: Final = "_unknown_fields"

_CORRUPT: Final = "_corrupt_record"


def parsed(records: DataFrame, source: Source) -> DataFrame:
    """Add to the records of a source the columns ROW and ERROR.

    JSON that was parsed in the task that read it (`json_values.py`) is not parsed again.
    """
    in_task = PARSED in records.columns
    value = f.col(UNPARSED if UNPARSED in records.columns else "value")
    if source.binary is not None:
        row = f.struct(value.alias(source.binary))
        return records.withColumns({ROW: row, ERROR: f.lit(None).cast("string")})
    text = value.cast("string")
    if source.text is not None:
        row = f.struct(text.alias(source.text))
        return records.withColumns({ROW: row, ERROR: _text_error(value, text)})
    if source.avro is not None:
        return _parsed_avro(records, source.avro)
    schema = source.json if source.json is not None else source.csv
    assert schema is not None, "a checked source has a format"
    columns = parse_columns(schema)
    options = {**source.parse, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    with_corrupt = f"{schema}, {_CORRUPT} STRING"
    if source.json is not None:
        whole = f.from_json(text, with_corrupt, options)
        # Spark would replace bytes that are not UTF-8 by another character.
        errors = [_text_error(value, text), *_json_errors(value, text, source, columns)]
    else:
        whole = f.from_csv(text, with_corrupt, options)
        errors = [_text_error(value, text)]

    def checked(parsed_value: Column) -> Column:
        fields = [parsed_value[column.name].alias(column.name) for column in columns]
        if source.unknown_fields == "keep":
            fields.append(_unknown_fields(text, columns).alias(UNKNOWN_FIELDS))
        error = f.coalesce(*errors, *_row_errors(parsed_value, source, columns))
        return f.struct(f.struct(*fields).alias("row"), error.alias("error"))

    # In an array: otherwise Spark parses the value again for each field that the error needs.
    both = f.transform(f.array(whole), checked)[0]
    # A nondeterministic expression is not pushed into filters, where Spark would repeat it.
    is_needed = f.spark_partition_id() >= 0
    if not in_task:
        return _with_parsed(records, f.when(is_needed, both))
    found = _with_parsed(records, f.when(is_needed & f.col(PARSED).isNull(), both))
    fields = [f.col(PARSED)[column.name].alias(column.name) for column in columns]
    if source.unknown_fields == "keep":  # the tasks parse only values without such fields
        fields.append(f.lit(None).cast("string").alias(UNKNOWN_FIELDS))
    row = f.when(f.col(PARSED).isNotNull(), f.struct(*fields)).otherwise(f.col(ROW))
    return found.withColumn(ROW, row).drop(PARSED, UNPARSED)


def _with_parsed(records: DataFrame, both: Column) -> DataFrame:
    """Add the columns ROW and ERROR from a struct with both."""
    once = records.withColumn("_parsed", both)
    return once.select(
        *records.columns, f.col("_parsed.row").alias(ROW), f.col("_parsed.error").alias(ERROR)
    )


def _parsed_avro(records: DataFrame, schema: str) -> DataFrame:
    """Parse Avro in Python, in Arrow batches: there is no Avro reader in Spark's wheel."""
    import pyarrow
    from pyspark.sql.pandas import types as arrow_types

    arrow: Any = pyarrow
    conversions: Any = arrow_types
    functions: Any = f
    row: Any = StructType.fromDDL(avro_ddl(schema))
    spark_type = StructType().add("row", row).add("error", StringType())

    def decode(values: Any) -> Any:
        from ottla.pipeline.avro_values import decoded_values

        rows = [one._asdict() for one in decoded_values(schema, values.to_pylist())]
        arrow_type = conversions.to_arrow_type(spark_type, timezone="UTC")
        return arrow.array(rows, type=arrow_type)

    # Spark takes the kind of the function from its annotations.
    decode.__annotations__ = {"values": arrow.Array, "return": arrow.Array}
    udf = functions.arrow_udf(decode, spark_type).asNondeterministic()
    return _with_parsed(records, udf("value"))


def _text_error(value: Column, text: Column) -> Column:
    return f.when(value.isNull(), "the value is null").when(
        ~f.is_valid_utf8(text), "the value is not UTF-8"
    )


def _row_errors(row: Column, source: Source, columns: tuple[SchemaColumn, ...]) -> list[Column]:
    kind = "JSON" if source.json is not None else "CSV"
    is_corrupt = row.isNull() | row[_CORRUPT].isNotNull()
    found = [f.when(is_corrupt, f"the value is not {kind} with the columns of the schema")]
    for column in columns:
        if column.is_required:
            missing = f.when(row[column.name].isNull(), f"column {column.name} is null")
            found.append(missing)
    return found


def _json_errors(
    value: Column, text: Column, source: Source, columns: tuple[SchemaColumn, ...]
) -> list[Column]:
    is_empty = f.when(f.length(value) == 0, "the value is empty")
    if source.unknown_fields != "dead_letter":
        return [is_empty]
    known = f.array(*(f.lit(column.name) for column in columns))
    unknown = f.array_except(f.json_object_keys(text), known)
    names = f.concat(f.lit("unknown fields: "), f.array_join(unknown, ", "))
    return [is_empty, f.when(f.size(unknown) > 0, names)]


def _unknown_fields(text: Column, columns: tuple[SchemaColumn, ...]) -> Column:
    """Return the fields that are not in the schema as a JSON object; null if there are none."""
    known = [column.name for column in columns]
    fields = f.from_json(text, "MAP<STRING, VARIANT>")
    unknown = f.map_filter(fields, lambda name, _: ~name.isin(known))
    return f.when(f.size(unknown) > 0, f.to_json(unknown))
