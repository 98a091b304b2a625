"""The keys that make a partition larger than others."""

from ottla.cli.topic.hot_keys import KEY_CHARACTERS_MAX, HotKey, hot_keys, keys_shown, shown_key


def test_keys_with_a_tenth_of_the_sample_are_hot() -> None:
    keys = [b"a"] * 60 + [b"b"] * 10 + [b"c"] * 9 + [f"{number}".encode() for number in range(21)]
    assert hot_keys(keys) == (HotKey("a", 0.6), HotKey("b", 0.1))
    assert hot_keys([]) == ()


def test_records_without_a_key_have_no_hot_key() -> None:
    assert hot_keys([None] * 90 + [b"a"] * 10) == (HotKey("a", 0.1),)


def test_at_most_three_keys_are_named() -> None:
    keys = [f"{number % 5}".encode() for number in range(100)]
    assert [one.key for one in hot_keys(keys)] == ["0", "1", "2"]
    keys = [None] * 40 + [f"{number % 4}".encode() for number in range(60)]
    assert [one.key for one in hot_keys(keys)] == ["0", "1", "2"]


def test_keys_are_printable_and_short() -> None:
    assert shown_key(b"a\x1b[31m") == r"a\x1b[31m"
    assert shown_key(b"\xff\x00") == "0xff00"
    assert len(shown_key(b"x" * 1000)) == KEY_CHARACTERS_MAX
    assert keys_shown([HotKey("a", 0.625), HotKey("b", 0.1)]) == "hot keys: a (62%), b (10%)"
    assert keys_shown([]) == ""
