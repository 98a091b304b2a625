import pytest

from cases import each_case
from ottla.pipeline.spec.sql_inputs import SqlError, check_condition, sql_inputs

QUERIES = [
    ("SELECT * FROM a", "a"),
    ("select x from A as y where x = 'FROM b'", "A"),
    ("SELECT * FROM a, b c, `d e` WHERE x IN (f, g)", "a b d e"),
    ("SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN c USING (x)", "a b c"),
    ("SELECT * FROM (SELECT * FROM a) x, (b CROSS JOIN c)", "a b c"),
    ("SELECT * FROM a WHERE x > (SELECT max(x) FROM b)", "a b"),
    ("SELECT * FROM a UNION ALL SELECT y, z FROM b", "a b"),
    ("WITH c AS (SELECT * FROM a), d (x, y) AS (SELECT * FROM c) SELECT * FROM d JOIN b", "a b"),
    ("WITH a AS (SELECT * FROM a WHERE (x > 1)) SELECT * FROM a", "a"),
    ("SELECT extract(DAY FROM x), trim(BOTH ' ' FROM y), substring(z FROM 2) FROM a", "a"),
    ("SELECT x IS DISTINCT FROM y, z IS NOT DISTINCT FROM w FROM a", "a"),
    ("SELECT * FROM range(10), explode(x) JOIN a", "a"),
    ("SELECT * FROM VALUES (1, 2) AS t(x, y)", ""),
    ("SELECT * FROM parquet.`data/x`, spark_catalog.default.t, a", "a"),
    ("SELECT x, y FROM a LATERAL VIEW explode(z) t AS x, y", "a"),
    ("SELECT * FROM a, LATERAL (SELECT * FROM b)", "a b"),
    ("FROM a |> WHERE x > 1 |> SELECT x, y", "a"),
    ("TABLE a", "a"),
    ("SELECT device, window.start, avg(t) FROM a GROUP BY device, window(at, '1 minute')", "a"),
    ("SELECT session_window(at, '5 minutes'), count(*) FROM a GROUP BY 1, user ORDER BY c, d", "a"),
    ("-- FROM x\nSELECT /* FROM y */ 'it''s', \"FROM z\", r'\\' FROM a;", "a"),
    ("SELECT transform(xs, x -> x + 1), m['k'], arr[0] FROM a", "a"),
    ("SELECT `from`, `join`.x FROM a AS `join`", "a"),
    ("SELECT 1", ""),
    ("SELECT * FROM `größe`", "größe"),
]


@each_case(("query", "names"), QUERIES)
def test_inputs_of_a_query_are_found(query: str, names: str) -> None:
    found = sql_inputs(query)
    assert " ".join(found.names) == names
    for name, offset in zip(found.names, found.offsets, strict=True):
        assert query[offset:].lstrip("`").startswith(name)


@each_case(
    ("query", "why"),
    [
        ("SELECT * FROM a", None),
        ("SELECT * FROM a UNION ALL SELECT * FROM b", None),
        ("SELECT count(*) FROM a GROUP BY x", "GROUP BY"),
        ("SELECT * FROM a JOIN b", "JOIN"),
        ("SELECT DISTINCT x FROM a", "DISTINCT"),
        ("SELECT `group`, by FROM a", None),
    ],
)
def test_queries_that_combine_rows_are_known(query: str, why: str | None) -> None:
    assert sql_inputs(query).combines == why


@each_case(
    ("query", "message", "offset"),
    [
        ("", "the query is empty", 0),
        ("-- nothing", "the query is empty", 0),
        ("DROP TABLE a", "begins with SELECT or WITH", 0),
        ("SELECT 'a FROM b", "the quote ' has no end", 7),
        ("SELECT (1", r"\( is not closed", 7),
        ("SELECT 1)", r"\) closes nothing", 8),
        ("SELECT [1)", r"\) closes nothing", 9),
        ("SELECT 1; SELECT 2", "expected one statement", 8),
        ("SELECT 1 /* a", r"the comment /\* has no end", 9),
    ],
)
def test_text_that_is_not_a_query_is_refused(query: str, message: str, offset: int) -> None:
    with pytest.raises(SqlError, match=message) as error:
        sql_inputs(query)
    assert error.value.offset == offset


def test_condition_is_not_a_query() -> None:
    check_condition("celsius BETWEEN -60 AND 120 AND device RLIKE 'a(b'")
    with pytest.raises(SqlError, match="expected a condition"):
        check_condition("SELECT true")
