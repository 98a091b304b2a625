"""`ottla profile`: saved settings, output, and hidden passwords."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.console import PATIENCE_S, SCRIPTS, ottla, surroundings
from cli.golden import check_golden, check_settled
from judges.ottla_broker import ottla_broker
from ottla.cli import profiles
from ottla.cli.client_settings import Client, check, is_secret, masked, taken
from ottla.settings.admin import ADMIN
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER
from ottla.sync import Admin

SECRET = "hunter2"
NO_UTF8 = os.fsdecode(b"\xff")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for arguments in (
        ("prod", "bootstrap.servers=a:9092,b:9092", "security.protocol=SASL_SSL"),
        ("prod", "sasl.mechanism=PLAIN", "sasl.username=me", f"sasl.password={SECRET}"),
        ("dev", "bootstrap.servers=127.0.0.1:9092"),
    ):
        done = ottla("profile", "set", *arguments, home=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert SECRET not in done.stdout
    return tmp_path


def kept(home: Path) -> profiles.Profiles:
    return profiles.read(profiles.config_path({"HOME": str(home)}))


def test_profile_is_saved_and_listed(home: Path) -> None:
    assert kept(home).of("prod")["sasl.password"] == SECRET
    assert ottla("profile", "use", "prod", home=home).returncode == 0
    assert kept(home).used == "prod"
    for form, name in (("table", "profile-list.txt"), ("json", "profile-list.json")):
        done = ottla("profile", "list", "-o", form, home=home)
        assert done.returncode == 0
        check_golden(name, done.stdout)


def test_passwords_are_not_shown(home: Path) -> None:
    ottla("profile", "use", "prod", home=home)
    for form, name in (("table", "profile-show.txt"), ("json", "profile-show.json")):
        done = ottla("profile", "show", "-o", form, home=home)
        assert (done.returncode, done.stderr) == (0, "")
        assert SECRET not in done.stdout
        check_golden(name, done.stdout)
    done = ottla("profile", "set", "prod", "retries=many", f"sasl.password={SECRET}2", home=home)
    assert SECRET not in done.stdout + done.stderr
    assert kept(home).of("prod")["sasl.password"] == SECRET


def test_setting_is_changed_and_removed(home: Path) -> None:
    done = ottla("profile", "set", "prod", "sasl.password=", "client.id=x", "-o", "json", home=home)
    assert json.loads(done.stdout)["warnings"] == []
    found = kept(home).of("prod")
    assert "sasl.password" not in found
    assert (found["client.id"], found["sasl.username"]) == ("x", "me")


def test_concurrent_commands_keep_all_profiles(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [str(SCRIPTS / "ottla"), "profile", "set", f"profile-{number}", "client.id=x"],
            env=surroundings(tmp_path),
            stdout=subprocess.DEVNULL,
        )
        for number in range(6)
    ]
    assert [one.wait(PATIENCE_S) for one in running] == [0] * 6
    assert {*kept(tmp_path).settings} == {f"profile-{number}" for number in range(6)}


def test_variable_overrides_the_current_profile(home: Path) -> None:
    env = {"OTTLA_PROFILE": "dev"}
    done = ottla("profile", "use", "prod", home=home, env=env)
    assert "OTTLA_PROFILE=dev overrides it" in done.stderr
    told = json.loads(ottla("profile", "show", "-o", "json", home=home, env=env).stdout)
    assert (told["name"], told["used"]) == ("dev", True)
    assert ottla("profile", "use", "--none", home=home).returncode == 0
    assert kept(home).used is None


def test_delete_asks_or_needs_yes(home: Path) -> None:
    done = ottla("profile", "delete", "prod", home=home)
    assert done.returncode == 2
    assert done.stderr == "ottla: Delete profile prod? Cannot ask without a terminal: use --yes\n"
    assert "prod" in kept(home).settings
    done = ottla("profile", "delete", "prod", "--yes", "-o", "json", home=home)
    assert json.loads(done.stdout) == {"deleted": "prod"}
    assert "prod" not in kept(home).settings


def test_output_of_changes_is_golden(home: Path) -> None:
    for words in (
        ("set", "prod", "client.id=x", "sasl.password=other"),
        ("use", "prod"),
        ("delete", "dev", "--yes"),
    ):
        name = f"profile-{words[0]}"
        table = ottla("profile", *words, home=home)
        if words[0] == "delete":
            assert ottla("profile", "set", "dev", "client.id=y", home=home).returncode == 0
        objects = ottla("profile", *words, "-o", "json", home=home)
        assert (table.returncode, objects.returncode) == (0, 0)
        check_settled(f"{name}.txt", table.stdout)
        check_settled(f"{name}.json", objects.stdout)


def test_unknown_setting_is_saved_with_a_warning(home: Path) -> None:
    done = ottla("profile", "set", "dev", "bootstrap.server=a:1", home=home)
    assert done.returncode == 0
    assert done.stderr == (
        "ottla: warning: bootstrap.server: unknown setting, did you mean bootstrap.servers?\n"
    )
    assert kept(home).of("dev")["bootstrap.server"] == "a:1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "none"), "profile 'none' does not exist; known profiles: dev, prod"),
        (("show",), "no current profile: select one with `ottla profile use NAME`"),
        (("use", "none"), "profile 'none' does not exist"),
        (("use",), "name a profile or use --none, one of the two"),
        (("use", "dev", "--none"), "name a profile or use --none, one of the two"),
        (("delete", "none", "--yes"), "profile 'none' does not exist"),
        (("set", "dev", "retries"), "'retries' is not a setting: use key=value"),
        (("set", "dev", "retries=many"), 'retries: invalid value "many"'),
        (("set", " ", "retries=1"), "the profile name must not be empty"),
        (("set", "dev"), "Missing argument"),
        (("set", NO_UTF8, "client.id=x"), "profile names and settings must be valid UTF-8"),
        (("set", "dev", f"client.id={NO_UTF8}"), "profile names and settings must be valid UTF-8"),
        (("set", "dev", f"{NO_UTF8}=x"), "profile names and settings must be valid UTF-8"),
    ],
)
def test_wrong_usage_prints_one_line_and_exits_with_2(
    home: Path, arguments: tuple[str, ...], says: str
) -> None:
    before = kept(home)
    done = ottla("profile", *arguments, home=home)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    done = ottla("profile", *arguments, "-o", "json", home=home)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "USAGE"
    assert kept(home) == before


def test_every_sensitive_setting_is_masked() -> None:
    rows = [row for table in (ADMIN, PRODUCER, CONSUMER) for row in table.settings.values()]
    secrets = {row.name for row in rows if row.sensitive}
    assert {"sasl.password", "sasl.jaas.config", "ssl.key.password"} <= secrets
    assert all(map(is_secret, secrets))
    assert not any(is_secret(row.name) for row in rows if not row.sensitive)
    assert masked({"my.own.token": "x", "client.id": "y"}) == {
        "my.own.token": "[hidden]",
        "client.id": "y",
    }


def test_settings_are_validated() -> None:
    assert check({"bootstrap.servers": "a:1", "retries": ""}) == []
    assert check({"acks": "all", "group.id": "g"}) == []
    with pytest.raises(InvalidSettings, match="retries"):
        check({"retries": "x"})
    with pytest.raises(InvalidSettings) as told:
        check({"sasl.login.refresh.window.factor": "7", "client.id": "x"})
    assert "client.id" not in str(told.value)


FOR_ALL = {
    "bootstrap.servers": "a:1",
    "default.api.timeout.ms": "20000",
    "group.id": "g",
    "linger.ms": "5",
    "compression.type": "zstd",
    "key.serializer": "some.java.Class",
}


@pytest.mark.parametrize(
    ("clients", "names"),
    [
        (["admin"], {"bootstrap.servers", "default.api.timeout.ms"}),
        (["consumer"], {"bootstrap.servers", "default.api.timeout.ms", "group.id"}),
        (["consumer", "producer"], {"bootstrap.servers", "default.api.timeout.ms", "group.id"}),
    ],
)
def test_client_gets_its_settings_of_a_profile(clients: list[Client], names: set[str]) -> None:
    assert {*taken(FOR_ALL, (), clients, {})} == names


def test_producer_gets_the_api_timeout_as_max_block_ms() -> None:
    settings = {name: value for name, value in FOR_ALL.items() if name != "key.serializer"}
    found = taken(settings, (), ["producer"], {})
    assert found["max.block.ms"] == "20000"
    assert {*found} == {"bootstrap.servers", "linger.ms", "compression.type", "max.block.ms"}
    found = taken({**settings, "max.block.ms": "7"}, {"default.api.timeout.ms"}, ["producer"], {})
    assert found["max.block.ms"] == "7"


def test_given_setting_is_refused_if_no_client_has_it() -> None:
    """The same setting of a profile is ignored."""
    why = {"linger.ms": "use --linger"}
    assert "linger.ms" not in taken(FOR_ALL, (), ["producer"], why)
    both: tuple[Client, Client] = ("consumer", "producer")
    cases: list[tuple[str, Sequence[Client], str]] = [
        ("acks", ["admin"], "acks: only commands that produce accept it"),
        ("retries", ["consumer"], "retries: only commands that administrate or produce accept it"),
        ("linger.ms", both, "linger.ms: use --linger"),
    ]
    for said, clients, text in cases:
        with pytest.raises(InvalidSettings) as told:
            taken({"linger.ms": "5", "retries": "5", "acks": "1"}, {said}, clients, why)
        assert str(told.value) == text
    assert taken({"linger.ms": "5"}, {"linger.ms"}, both, {}) == {}


def test_unknown_setting_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidSettings) as told:
        taken({"liner.ms": SECRET, "retention.ms": "1", "acks": "1"}, (), ["admin"], {})
    assert [str(one) for one in told.value.problems] == [
        "liner.ms: unknown setting, did you mean linger.ms?",
        "retention.ms: unknown setting",
    ]


def test_profile_is_for_all_commands(tmp_path: Path) -> None:
    """Settings of any client are accepted, and the group in the profile is not used."""
    with ottla_broker() as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "shop",
            "linger.ms": "1",
            "compression.type": "gzip",
            "transactional.id": "shop-1",
        }
        made = profiles.Profiles().with_settings("all", settings).using("all")
        profiles.write(profiles.config_path({"HOME": str(tmp_path)}), made)
        for words in (
            "topic create t -p 1",
            "produce t",
            "consume t",
            "perf consume t --timeout 60",
            "perf latency t -n 1",
            "topic list",
        ):
            done = ottla(*words.split(), home=tmp_path, stdin="x\n")
            assert (done.returncode, done.stderr) == (0, ""), words
        assert not admin.list_groups().found
        for words, says in (
            ("topic list -X linger.ms=1", "linger.ms: only commands that produce accept it"),
            ("topic list -X liner.ms=1", "liner.ms: unknown setting, did you mean"),
            ("consume t -X group.id=g", "group.id: use --group"),
            ("perf produce t -X linger.ms=9", "linger.ms: use --linger"),
        ):
            done = ottla(*words.split(), home=tmp_path)
            assert (done.returncode, done.stdout) == (2, ""), words
            assert done.stderr.startswith(f"ottla: {says}")
            assert done.stderr.count("\n") == 1
