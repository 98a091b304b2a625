import pytest

from cases import each_case
from ottla.pipeline.spec.schema_ddl import SchemaSyntaxError, parse_columns

SCHEMAS = [
    ("a INT", "a:INT"),
    ("a: INT, b: string", "a:INT b:STRING"),
    ("a INT NOT NULL COMMENT 'it''s', b LONG", "a:INT b:BIGINT"),
    ("a DECIMAL(10, 2), b NUMERIC(5), c DECIMAL", "a:DECIMAL b:DECIMAL c:DECIMAL"),
    ("a ARRAY<ARRAY<INT>>, b MAP<STRING, ARRAY<INT>>", "a:ARRAY b:MAP"),
    ("a STRUCT<b: INT NOT NULL, c STRUCT<d: INT>, e: STRUCT<>>", "a:STRUCT"),
    ("a TIMESTAMP_NTZ, b TIMESTAMP_LTZ, c DATE", "a:TIMESTAMP_NTZ b:TIMESTAMP c:DATE"),
    ("a INTERVAL DAY TO SECOND, b INTERVAL YEAR", "a:INTERVAL b:INTERVAL"),
    ("`a b` STRING, `c``d` INT", "a b:STRING c`d:INT"),
    ("a STRING COLLATE UNICODE_CI, b VARIANT", "a:STRING b:VARIANT"),
    ("timestamp TIMESTAMP, date DATE, map MAP<INT, INT>", "timestamp:TIMESTAMP date:DATE map:MAP"),
]


@each_case(("schema", "columns"), SCHEMAS)
def test_columns_are_parsed(schema: str, columns: str) -> None:
    assert " ".join(f"{one.name}:{one.type}" for one in parse_columns(schema)) == columns


@each_case(
    ("schema", "message", "offset"),
    [
        ("", "expected a column name, found the end", 0),
        ("a", "expected a type", 1),
        ("a INT,", "expected a column name, found the end", 6),
        ("a INT b INT", "expected a comma", 6),
        ("a INT, A STRING", 'column "A" is there twice', 7),
        ("a VARCHAR(10)", 'unknown type "VARCHAR"; use STRING', 2),
        ("a ARRAY", "as in ARRAY<STRING>", 7),
        ("a ARRAY<INT", "as in ARRAY<STRING>, found the end", 11),
        ("a MAP<INT>", "a comma, as in MAP<STRING, DOUBLE>", 9),
        ("a DECIMAL(1, 2, 3)", "a closing parenthesis", 14),
        ("a DECIMAL(x)", "expected a number", 10),
        ("a INT NOT", "expected NULL after NOT", 9),
        ("a INT COMMENT x", "in quotes after COMMENT", 14),
        ("a JSON", 'unknown type "JSON"; use STRING', 2),
        ("a FOOBAR", "use a type such as STRING", 2),
        ("a.b INT", 'unexpected character "."', 1),
        ('{"type": "struct"}', 'unexpected character "{"', 0),
    ],
)
def test_text_that_is_not_a_schema_is_refused(schema: str, message: str, offset: int) -> None:
    with pytest.raises(SchemaSyntaxError, match=message) as error:
        parse_columns(schema)
    assert error.value.offset == offset
