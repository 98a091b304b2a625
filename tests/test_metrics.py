"""The metrics in text format, parsed by the library of Prometheus."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cases import each_case
from ottla.metrics import (
    GROUP_LAG,
    LATENCY_SECONDS,
    LEADERS,
    METRICS,
    REQUEST_SECONDS,
    ApiCounts,
    Kind,
    Metric,
    exposition,
)

AWKWARD = ["plain", 'a"b', "a\\b", "a\nb", "a\\nb", "", "ü€", '"} 1\nforged 1']
CONTROLS = {
    "a\rb": "a␍b",
    "\x00": "␀",
    "\x1b[31mred": "␛[31mred",
    "\x7f": "␡",
    "\x9b2J": "\ufffd2J",
}


@each_case(("name", "shown"), [*((name, name) for name in AWKWARD), *CONTROLS.items()])
def test_labels_are_escaped(name: str, shown: str) -> None:
    text = exposition([(GROUP_LAG, [((name, "t", "0"), 7), (("other", "t", "1"), 0)])])
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == (
        GROUP_LAG.name,
        "gauge",
        GROUP_LAG.doc,
    )
    assert [(one.labels, one.value) for one in family.samples] == [
        ({"group": shown, "topic": "t", "partition": "0"}, 7),
        ({"group": "other", "topic": "t", "partition": "1"}, 0),
    ]
    assert not [one for one in text if one != "\n" and not one.isprintable()]


def test_histogram_is_cumulative_with_inclusive_bounds() -> None:
    counts = ApiCounts()
    for seconds in (0.0, LATENCY_SECONDS[0], 0.002, 1000.0):
        counts.note(seconds)
    (family,) = text_string_to_metric_families(
        exposition([(REQUEST_SECONDS, [(("Fetch",), counts)])])
    )
    found = {one.labels.get("le", one.name): one.value for one in family.samples}
    assert found["0.0001"] == 2
    assert found["0.001"] == 2
    assert found["0.0025"] == 3
    assert found["10.0"] == 3
    assert found["+Inf"] == found["ottla_request_seconds_count"] == 4
    assert found["ottla_request_seconds_sum"] == pytest.approx(1000.0021)
    assert len(found) == len(LATENCY_SECONDS) + 3


def test_errors_are_counted_by_code() -> None:
    counts = ApiCounts()
    for code in (3, 6, 3):
        counts.note_error(code)
    assert counts.errors == {3: 2, 6: 1}


def test_exposition_of_families_without_values_or_labels() -> None:
    text = exposition([(GROUP_LAG, []), (LEADERS, [((), 5)])])
    assert text.splitlines()[2:] == ["ottla_leader_partitions 5"]
    assert "group" not in text
    assert text.endswith("\n")


@each_case("metric", METRICS, ids=lambda metric: metric.name)
def test_metric_names_have_unit_and_suffix(metric: Metric) -> None:
    assert re.fullmatch(r"ottla_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)
    assert metric.doc.endswith(".")


def test_every_metric_is_in_the_table_once() -> None:
    import ottla.metrics

    declared = [one for one in vars(ottla.metrics).values() if isinstance(one, Metric)]
    assert list(METRICS) == declared
    assert len({one.name for one in METRICS}) == len(METRICS)
