"""Profiles, and the effective settings of a client."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cases import each_case
from ottla.cli import profiles
from ottla.cli.failures import BadProfile, BadSetting
from ottla.cli.profiles import Profiles
from ottla.cli.target import BOOTSTRAP, HERE, target_of

ODD = 'a "quoted" \\ value\nwith ünïcode\x7f and \x01'


def test_written_profiles_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "below" / "config.toml"
    made = Profiles().with_settings("prod", {BOOTSTRAP: "a:1,b:2", "sasl.password": ODD})
    made = made.with_settings("odd name.", {"client.id": "x"}).using("prod")
    profiles.write(path, made)
    assert profiles.read(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*path.parent.iterdir()] == [path]


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "below" / "config.toml"
    names = [f"profile-{number}" for number in range(64)]

    def make(name: str) -> None:
        profiles.changed(path, lambda known: known.with_settings(name, {"client.id": name}))

    with ThreadPoolExecutor(8) as threads:
        assert len([*threads.map(make, names)]) == 64
    assert {*profiles.read(path).settings} == {*names}
    lock = path.with_name("config.toml.lock")
    assert sorted(path.parent.iterdir()) == [path, lock]
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_failed_change_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    profiles.changed(path, lambda known: known.with_settings("a", {"x": "1"}))
    with pytest.raises(BadProfile, match="profile 'b' does not exist"):
        profiles.changed(path, lambda known: known.without("b"))
    assert profiles.changed(path, lambda known: known.using("a")).used == "a"


def test_change_of_an_unwritable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadProfile, match="cannot write"):
        profiles.changed(tmp_path / "file" / "config.toml", lambda known: known)


def test_dotted_names_without_quotes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[profiles.dev]\nbootstrap.servers = "a:1"\nenable.idempotence = false\nn = 5\n'
    )
    found = profiles.read(path).of("dev")
    assert found == {BOOTSTRAP: "a:1", "enable.idempotence": "false", "n": "5"}


def test_missing_file_has_no_profiles(tmp_path: Path) -> None:
    assert profiles.read(tmp_path / "none") == Profiles()


@each_case("text", ["[profiles", "profile = 3", "profiles = 3", "[profiles]\nprod = 3", "\xff"])
def test_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadProfile, match=r"config\.toml"):
        profiles.read(path)


def test_profiles_are_changed_and_removed() -> None:
    made = Profiles().with_settings("a", {"x": "1", "y": "2"}).with_settings("a", {"x": ""})
    assert made.of("a") == {"y": "2"}
    used = made.using("a")
    assert used.without("a") == Profiles()
    with pytest.raises(BadProfile, match="profile 'b' does not exist; known profiles: a"):
        used.using("b")
    with pytest.raises(BadProfile):
        used.without("b")


def test_path_depends_on_the_environment() -> None:
    assert profiles.config_path({"OTTLA_CONFIG": "/x/y"}) == Path("/x/y")
    assert profiles.config_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/ottla/config.toml")
    assert profiles.config_path({"HOME": "/h"}) == Path("/h/.config/ottla/config.toml")


def test_command_line_overrides_profiles(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    made = Profiles().with_settings("a", {BOOTSTRAP: "a:1", "client.id": "a"})
    made = made.with_settings("b", {BOOTSTRAP: "b:1"})
    environment = {"OTTLA_CONFIG": str(path)}

    def server(**said: object) -> str:
        return target_of(environment, **said).servers  # type: ignore[arg-type]

    assert server() == HERE
    profiles.write(path, made.using("a"))
    assert server() == "a:1"
    environment["OTTLA_PROFILE"] = "b"
    assert server() == "b:1"
    assert server(profile="a") == "a:1"
    assert server(profile="a", bootstrap_server="c:1") == "c:1"
    assert server(settings=["bootstrap.servers=d:1"]) == "d:1"
    with pytest.raises(BadSetting, match="different brokers"):
        server(bootstrap_server="c:1", settings=["bootstrap.servers=d:1"])
    assert target_of(environment, profile="a").settings["client.id"] == "a"
    with pytest.raises(BadProfile):
        server(profile="c")


@pytest.mark.parametrize("said", ["x", "=x", " =x"])
def test_setting_requires_a_name_and_a_value(said: str) -> None:
    with pytest.raises(BadSetting):
        target_of({"OTTLA_CONFIG": "/none"}, settings=[said])


def test_value_may_have_any_characters() -> None:
    found = target_of({"OTTLA_CONFIG": "/none"}, settings=["a=b=c", "d="])
    assert (found.settings["a"], found.settings["d"], found.said) == ("b=c", "", {"a", "d"})
