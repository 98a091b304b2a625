"""Expectations on the rows of a source or step: counts them, and removes or refuses rows.

Invariant: a row fails an expectation if its condition is false or NULL. A row that fails several
has the strongest effect: fail, then dead_letter, then drop.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.pipeline.spec.model import Expectation


def is_met(expectation: Expectation) -> Column:
    """Return whether a row meets an expectation; never NULL."""
    return f.coalesce(f.expr(expectation.check).cast("boolean"), f.lit(False))


def enforced(rows: DataFrame, name: str, expectations: Mapping[str, Expectation]) -> DataFrame:
    """Return the rows that stay; the progress of a query has the counts as observed metrics.

    `name` is the source or step. A row that fails an expectation with `fail` fails the query.
    """
    if not expectations:
        return rows
    counts = [
        f.count_if(~is_met(one)).alias(expectation) for expectation, one in expectations.items()
    ]
    found = rows.observe(name, f.count(f.lit(1)).alias("rows"), *counts)
    for expectation, one in expectations.items():
        if one.otherwise == "fail":
            text = f"expectation {name}.{expectation} failed: {one.check}"
            refused = f.raise_error(f.lit(text)).cast("boolean")
            found = found.where(f.when(is_met(one), f.lit(True)).otherwise(refused))
        elif one.otherwise in ("drop", "dead_letter"):
            found = found.where(is_met(one))
    return found


def violation(name: str, expectations: Mapping[str, Expectation]) -> Column:
    """Return why a row is a dead letter: the first expectation that it fails, or NULL."""
    reasons = [
        f.when(~is_met(one), f"expectation {name}.{expectation} failed: {one.check}")
        for expectation, one in expectations.items()
        if one.otherwise == "dead_letter"
    ]
    return f.coalesce(*reasons) if reasons else f.lit(None).cast("string")
