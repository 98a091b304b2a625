"""The check of the executors on a real Spark."""

from typing import Any

import pytest

from ottla.pipeline import executors
from ottla.pipeline.executors import UnusableExecutors, check_executors


def test_executors_with_another_ottla_are_refused(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_executors(spark.sparkContext)
    with pytest.raises(UnusableExecutors, match=r"Ottla .* is installed, the driver has 9\.9"):
        check_executors(spark.sparkContext, release="9.9")
    monkeypatch.setattr(executors, "NEEDED", ("no_such_package",))
    missing = r"No module named 'no_such_package'; install Ottla 9\.9 with the extra spark"
    with pytest.raises(UnusableExecutors, match=missing):
        check_executors(spark.sparkContext, release="9.9")
