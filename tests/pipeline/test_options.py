"""The options of `format("ottla")`."""

import pytest

from ottla.pipeline.offsets import EARLIEST, LATEST, AtTime, AtTimes, Everywhere, Specific
from ottla.pipeline.options import TABLE, BadOption, Use, checked, client_settings
from ottla.pipeline.sink import sink_options
from ottla.pipeline.source_options import SourceOptions, Topics, source_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def batch(**options: str) -> SourceOptions:
    return source_options({**SERVERS, "subscribe": "t", **options}, Use.BATCH)


def stream(**options: str) -> SourceOptions:
    return source_options({**SERVERS, "subscribe": "t", **options}, Use.STREAM)


def test_option_names_ignore_case_and_are_unique() -> None:
    told = checked({"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": "t"}, Use.BATCH)
    assert told == {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    assert len({one.name.lower() for one in TABLE}) == len(TABLE)


def test_unknown_option_error_suggests_a_name() -> None:
    with pytest.raises(
        BadOption, match="unknown option startingOffset; did you mean startingOffsets"
    ):
        batch(startingOffset="earliest")
    with pytest.raises(BadOption, match=r"unknown option xyzzy$"):
        batch(xyzzy="1")


def test_client_settings_lose_their_kafka_prefix() -> None:
    told = checked({**SERVERS, "kafka.fetch.max.bytes": "7", "kafka.group.id": "g"}, Use.STREAM)
    found = client_settings(told, Use.STREAM)
    assert found == {"bootstrap.servers": "127.0.0.1:9092", "fetch.max.bytes": "7"}
    assert stream(**{"kafka.group.id": "g"}).group == "g"


@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "key.deserializer", "enable.auto.commit", "interceptor.classes"]
)
def test_settings_of_the_source_cannot_be_overridden(name: str) -> None:
    with pytest.raises(BadOption, match=f"kafka.{name} cannot be set"):
        batch(**{f"kafka.{name}": "x"})


def test_missing_servers_error_names_the_option() -> None:
    with pytest.raises(BadOption, match=r'\.option\("kafka\.bootstrap\.servers"'):
        source_options({"subscribe": "t"}, Use.BATCH)


@pytest.mark.parametrize(
    ("name", "use"),
    [("maxOffsetsPerTrigger", Use.BATCH), ("topic", Use.BATCH), ("topic", Use.STREAM)],
)
def test_options_of_other_uses_are_ignored_and_logged(
    name: str, use: Use, caplog: pytest.LogCaptureFixture
) -> None:
    found = source_options({**SERVERS, "subscribe": "t", name: "1"}, use)
    assert found == source_options({**SERVERS, "subscribe": "t"}, use)
    assert f"option {name} ignored: it is only for" in caplog.text


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_stream_rejects_ending_offsets(name: str) -> None:
    with pytest.raises(BadOption, match=f"{name} is only for reading a batch, not for reading"):
        source_options({**SERVERS, "subscribe": "t", name: "1"}, Use.STREAM)


def test_client_settings_are_checked_first() -> None:
    for name, value in (("kafka.isolation.leve", "x"), ("kafka.fetch.min.bytes", "abc")):
        with pytest.raises(BadOption, match=name.removeprefix("kafka.")):
            source_options({**SERVERS, "subscribe": "t", name: value}, Use.BATCH)
    with pytest.raises(BadOption, match=r"linger\.ms"):
        sink_options({**SERVERS, "kafka.linger.ms": "abc"})


def test_sink_accepts_the_options_of_a_source() -> None:
    assert sink_options({**SERVERS, "subscribe": "t", "startingOffsets": "earliest"}).topic is None


def test_topics_need_exactly_one_option() -> None:
    assert batch(subscribe=" a, b,a ").topics == Topics(names=("a", "b"))
    only = {**SERVERS, "subscribePattern": "a.*"}
    assert source_options(only, Use.BATCH).topics == Topics(pattern="a.*")
    only = {**SERVERS, "assign": '{"a": [1]}'}
    assert source_options(only, Use.BATCH).topics == Topics(partitions=(("a", 1),))  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadOption, match="not subscribe and assign"):
        batch(assign='{"a": [1]}')
    with pytest.raises(BadOption, match="not none"):
        source_options(SERVERS, Use.BATCH)
    with pytest.raises(BadOption, match="invalid pattern"):
        source_options({**SERVERS, "subscribePattern": "a("}, Use.BATCH)
    for empty in ("", " ", ","):
        with pytest.raises(BadOption):
            batch(subscribe=empty)


def test_batch_defaults_to_earliest_and_stream_to_latest() -> None:
    assert batch().start == Everywhere(EARLIEST)
    assert batch().end == Everywhere(LATEST)
    assert stream().start == Everywhere(LATEST)


def test_timestamp_options_override_offsets() -> None:
    offsets = {"startingOffsets": '{"t": {"0": 5}}'}
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 1000}}'}
    assert batch(**offsets).start == Specific({("t", 0): 5})  # pyright: ignore[reportArgumentType]
    assert batch(**offsets, **times).start == AtTimes({("t", 0): 1000}, None)  # pyright: ignore[reportArgumentType]
    assert batch(**offsets, **times, startingTimestamp="7").start == AtTime(7, None)
    latest = batch(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest")
    assert latest.start == AtTime(7, LATEST)
    assert batch(endingTimestamp="9").end == AtTime(9, LATEST)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "below -2"),
        ({"startingOffsets": "soon"}, "a JSON object"),
        ({"startingTimestamp": "soon"}, "milliseconds"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "below 0"),
        ({"startingTimestamp": f"{2**63}"}, "startingTimestamp must be a time"),
        ({"endingTimestamp": f"{2**63}"}, "endingTimestamp must be a time"),
        ({"startingOffsetsByTimestamp": f'{{"t": {{"0": {2**63}}}}}'}, "Timestamp: .* is above"),
        ({"endingOffsetsByTimestamp": f'{{"t": {{"0": {2**63}}}}}'}, "Timestamp: .* is above"),
        ({"endingOffsets": f'{{"t": {{"0": {2**63}}}}}'}, "endingOffsets: .* is above"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "error or latest"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"columns": "value, size"}, "unknown column 'size'; there are key, value"),
        ({"columns": ""}, "unknown column ''"),
        ({"jsonColumns": "a"}, "jsonColumns: expected a type"),
        ({"jsonColumns": "a INT", "jsonUnknownFields": "x"}, "must be ignore or unparsed"),
        ({"jsonColumns": "a INT", "skipParsed": "x"}, "true or false"),
        ({"jsonUnknownFields": "ignore"}, "jsonUnknownFields needs jsonColumns"),
        ({"skipParsed": "true"}, "skipParsed needs jsonColumns"),
        ({"columns": "parsed"}, "unknown column 'parsed'"),
        ({"minPartitions": "0"}, "above 0"),
        ({"minPartitions": "many"}, "above 0"),
    ],
)
def test_invalid_values_are_rejected(options: dict[str, str], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        batch(**options)


def test_largest_timestamp_is_accepted() -> None:
    last = 2**63 - 1
    assert batch(endingTimestamp=str(last)).end == AtTime(last, LATEST)


def test_micro_batch_limits_must_be_consistent() -> None:
    told = stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="30s")
    assert (told.batch_records_min, told.batch_records_max, told.batch_delay_s) == (5, 9, 30.0)
    with pytest.raises(BadOption, match="is above"):
        stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9")
    with pytest.raises(BadOption, match="a time like"):
        stream(maxTriggerDelay="soon")
