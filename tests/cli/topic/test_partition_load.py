"""Detection of skewed partitions."""

from ottla.cli.topic.partition_load import SIZE_MEAN_MIN, Look, bytes_shown, rate_shown, skewed


def test_partition_above_twice_the_mean_is_skewed() -> None:
    mib = 1 << 20
    assert skewed({0: 7 * mib, 1: mib, 2: mib}, None) == {0: {"size": 7 / 3}}
    assert skewed({0: 4 * mib, 1: mib, 2: mib}, None) == {}  # exactly twice
    assert skewed({0: 10 * mib, 1: 0}, None) == {}  # needs three partitions or more
    assert skewed({0: 0, 1: 0, 2: 0}, None) == {}
    assert skewed({}, None) == {}


def test_a_few_records_are_not_a_skew() -> None:
    assert skewed({0: 140, 1: 0, 2: 0}, None) == {}  # two records
    assert skewed({0: 3 * SIZE_MEAN_MIN - 1, 1: 0, 2: 0}, None) == {}
    assert skewed({0: 3 * SIZE_MEAN_MIN, 1: 0, 2: 0}, None) == {0: {"size": 3.0}}


def test_new_records_count_when_there_are_enough() -> None:
    few = Look({0: 5, 1: 5, 2: 5}, {0: 9, 1: 5, 2: 5}, 1.0)
    assert skewed({}, few) == {}
    many = Look({0: 5, 1: 5, 2: 5}, {0: 905, 1: 105, 2: 105}, 2.0)
    assert skewed({0: 1, 1: 1, 2: 1}, many) == {0: {"rate": 900 / (1100 / 3)}}
    assert many.rates() == {0: 450.0, 1: 50.0, 2: 50.0}


def test_rate_is_not_negative_and_needs_two_reads() -> None:
    assert Look({0: 5}, {0: 3, 1: 8}, 1.0).rates() == {0: 0.0}
    assert Look({0: 5}, {0: 5}, 0.0).rates() == {}


def test_sizes_and_rates_are_formatted_briefly() -> None:
    sizes = (None, 0, 1023, 1024, 1536, 5 << 20, 3 << 30, 5000 << 40)
    assert [bytes_shown(one) for one in sizes] == [
        "-", "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB", "5000.0 TiB",
    ]  # fmt: skip
    assert [rate_shown(one) for one in (None, 0.0, 0.25, 9.96, 1234.5)] == [
        "-", "0", "0.2", "10.0", "1234",
    ]  # fmt: skip
