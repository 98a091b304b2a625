"""Parsing of the flags of Kafka's tools."""

from dataclasses import replace

import pytest

from ottla.cli.kafka.flags import AskedForHelp, BadFlags, Flag, NotDone, Usage
from ottla.cli.kafka.tool import conducted, settings_of
from ottla.errors import OttlaError

USAGE = Usage(
    "kafka-things",
    "Look at things.",
    [
        Flag("topic", "topic", "Which."),
        Flag("topic-id", "id"),
        Flag("config", "name=value", many=True),
        Flag("list", help="List them."),
        Flag("describe"),
        Flag("members", done=False),
        Flag("group", "group", optional=True),
        Flag("command-config", "file"),
        Flag("bootstrap-server", "host:port"),
    ],
)


def test_value_is_the_next_word_or_follows_equals() -> None:
    given = USAGE.read(["--topic", "a", "--config=x=1", "--config", "y=2", "rest", "--", "--list"])
    assert given.one("topic") == "a"
    assert given.all("config") == ["x=1", "y=2"]
    assert given.rest == ["rest", "--list"]
    assert "list" not in given
    assert given.one("group") is None


def test_unambiguous_prefix_is_accepted_where_allowed() -> None:
    with pytest.raises(BadFlags, match="desc is not a recognized option"):
        USAGE.read(["--desc"])
    taking = replace(USAGE, takes_short_names=True)
    assert "describe" in taking.read(["--desc"])
    assert taking.read(["--topic", "x"]).one("topic") == "x"
    with pytest.raises(BadFlags, match="top is not a recognized option"):
        taking.read(["--top", "x"])


def test_optional_value_may_be_omitted() -> None:
    given = USAGE.read(["--group", "--list"])
    assert given.all("group") == []
    assert {"group", "list"} <= given.values.keys()
    assert USAGE.read(["--group", "g"]).one("group") == "g"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nothing"], "nothing is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["--topic", "a", "--topic", "b"], "Found multiple arguments for option topic"),
    ],
)
def test_wrong_usage_prints_the_usage_and_exits_with_1(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadFlags, match=message):
        USAGE.read(arguments)
    assert conducted(USAGE, _nothing, arguments) == 1
    told = capsys.readouterr().err.splitlines()
    assert message in told[0]
    assert told[1] == "Look at things."


def test_purpose_is_printed_once_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    async def act(_: object) -> int:
        raise BadFlags(USAGE.purpose)

    assert conducted(USAGE, act, []) == 1
    assert capsys.readouterr().err.count("Look at things.") == 1


async def _nothing(_: object) -> int:
    raise AssertionError("it is not to be run")


def test_unsupported_flag_prints_one_line_and_exits_with_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(NotDone):
        USAGE.read(["--members"])
    assert conducted(USAGE, _nothing, ["--members"]) == 2
    assert capsys.readouterr().err == "kafka-things: --members is not supported yet\n"


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AskedForHelp):
        USAGE.read(["--help"])
    assert conducted(USAGE, _nothing, ["--list", "--help"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert all(f"--{flag.name}" in told.err for flag in USAGE.flags)
    assert conducted(USAGE, _nothing, ["--version"]) == 0
    assert capsys.readouterr().err == ""
    aloud = replace(USAGE, help_code=0, helps_on_stdout=True, has_version=False)
    assert conducted(aloud, _nothing, ["--help"]) == 0
    assert capsys.readouterr().out == told.err.replace(_version_line(told.err), "")
    assert conducted(aloud, _nothing, ["--version"]) == 1


def _version_line(text: str) -> str:
    return next(line for line in text.splitlines(True) if "--version" in line)


def test_failure_prints_one_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    async def fails(_: object) -> int:
        raise OttlaError("it did not work")

    assert conducted(USAGE, fails, ["--list"]) == 1
    assert capsys.readouterr().err == "it did not work\n"


def test_bootstrap_server_overrides_the_properties_file(tmp_path: object) -> None:
    path = f"{tmp_path}/client.properties"
    with open(path, "w") as file:
        file.write("client.id = me\nbootstrap.servers=a:1\n")
    found = settings_of(USAGE.read(["--command-config", path, "--bootstrap-server", "b:1"]))
    assert (found["client.id"], found["bootstrap.servers"]) == ("me", "b:1")
    with pytest.raises(OttlaError, match="none"):
        settings_of(USAGE.read(["--command-config", f"{tmp_path}/none"]))
