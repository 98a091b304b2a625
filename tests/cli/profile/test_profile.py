"""`ottla profile`: what is kept, what is shown, and what nobody gets to see."""

import json
from pathlib import Path

import pytest

from cli.console import ottla
from cli.golden import check_golden
from ottla.cli.profile import file as profiles
from ottla.cli.profile.settings import check, is_secret, masked
from ottla.settings.admin import ADMIN
from ottla.settings.consumer import CONSUMER
from ottla.settings.problems import InvalidSettings
from ottla.settings.producer import PRODUCER

SECRET = "hunter2"


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
    return profiles.read(profiles.place({"HOME": str(home)}))


def test_what_is_set_is_kept_and_listed(home: Path) -> None:
    assert kept(home).of("prod")["sasl.password"] == SECRET
    assert ottla("profile", "use", "prod", home=home).returncode == 0
    assert kept(home).used == "prod"
    for form, name in (("table", "profile-list.txt"), ("json", "profile-list.json")):
        done = ottla("profile", "list", "-o", form, home=home)
        assert done.returncode == 0
        check_golden(name, done.stdout)


def test_passwords_are_shown_to_nobody(home: Path) -> None:
    ottla("profile", "use", "prod", home=home)
    for form, name in (("table", "profile-show.txt"), ("json", "profile-show.json")):
        done = ottla("profile", "show", "-o", form, home=home)
        assert (done.returncode, done.stderr) == (0, "")
        assert SECRET not in done.stdout
        check_golden(name, done.stdout)
    done = ottla("profile", "set", "prod", "retries=many", f"sasl.password={SECRET}2", home=home)
    assert SECRET not in done.stdout + done.stderr
    assert kept(home).of("prod")["sasl.password"] == SECRET


def test_a_setting_is_changed_and_taken_away(home: Path) -> None:
    done = ottla("profile", "set", "prod", "sasl.password=", "client.id=x", "-o", "json", home=home)
    assert json.loads(done.stdout)["warnings"] == []
    found = kept(home).of("prod")
    assert "sasl.password" not in found
    assert (found["client.id"], found["sasl.username"]) == ("x", "me")


def test_the_variable_counts_before_what_is_used(home: Path) -> None:
    env = {"OTTLA_PROFILE": "dev"}
    done = ottla("profile", "use", "prod", home=home, env=env)
    assert "OTTLA_PROFILE=dev counts before it" in done.stderr
    told = json.loads(ottla("profile", "show", "-o", "json", home=home, env=env).stdout)
    assert (told["name"], told["used"]) == ("dev", True)
    assert ottla("profile", "use", "--none", home=home).returncode == 0
    assert kept(home).used is None


def test_deleting_asks_or_is_told(home: Path) -> None:
    done = ottla("profile", "delete", "prod", home=home)
    assert done.returncode == 2
    assert done.stderr == "ottla: Delete profile prod? Nobody can be asked here: say --yes\n"
    assert "prod" in kept(home).settings
    done = ottla("profile", "delete", "prod", "--yes", "-o", "json", home=home)
    assert json.loads(done.stdout) == {"deleted": "prod"}
    assert "prod" not in kept(home).settings


def test_an_unknown_setting_is_kept_with_the_name_that_was_meant(home: Path) -> None:
    done = ottla("profile", "set", "dev", "bootstrap.server=a:1", home=home)
    assert done.returncode == 0
    assert done.stderr == (
        "ottla: warning: bootstrap.server: no client has such a setting, "
        "did you mean bootstrap.servers?\n"
    )
    assert kept(home).of("dev")["bootstrap.server"] == "a:1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "none"), "there is no profile 'none': dev, prod"),
        (("show",), "no profile is in use"),
        (("use", "none"), "there is no profile 'none'"),
        (("use",), "say which profile, or --none"),
        (("use", "dev", "--none"), "say which profile, or --none"),
        (("delete", "none", "--yes"), "there is no profile 'none'"),
        (("set", "dev", "retries"), "'retries' is no setting"),
        (("set", "dev", "retries=many"), 'retries: found "many"'),
        (("set", " ", "retries=1"), "a profile needs a name"),
        (("set", "dev"), "Missing argument"),
    ],
)
def test_what_cannot_be_is_one_line_and_2(
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


def test_every_secret_of_the_tables_is_masked() -> None:
    rows = [row for table in (ADMIN, PRODUCER, CONSUMER) for row in table.settings.values()]
    secrets = {row.name for row in rows if row.sensitive}
    assert {"sasl.password", "sasl.jaas.config", "ssl.key.password"} <= secrets
    assert all(map(is_secret, secrets))
    assert not any(is_secret(row.name) for row in rows if not row.sensitive)
    assert masked({"my.own.token": "x", "client.id": "y"}) == {
        "my.own.token": "[hidden]",
        "client.id": "y",
    }


def test_settings_are_checked_by_the_tables() -> None:
    assert check({"bootstrap.servers": "a:1", "retries": ""}) == []
    assert "only producing or consuming" in check({"acks": "all"})[0]
    with pytest.raises(InvalidSettings, match="retries"):
        check({"retries": "x"})
    with pytest.raises(InvalidSettings) as told:
        check({"sasl.login.refresh.window.factor": "7", "client.id": "x"})
    assert "client.id" not in str(told.value)
