"""Completion as shells request it: through the environment of the installed script."""

import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
import shellingham

from cli.scripts import BIN, environment, ottla
from cli.test_every_command import LEAVES
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.cli.shells import with_shell
from ottla.sync import Admin


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for name in ("orders", "orders-eu", "users"):
                admin.create_topic(name, 1)
            admin.alter_group_offsets("shop", {("orders", 0): 0}).or_raise()
        yield broker


def completed(words: str, **env: str) -> list[str]:
    """Return what bash is offered for the last word."""
    said = ottla(
        env={
            "_OTTLA_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            **env,
        }
    )
    assert said.stderr == ""
    return said.stdout.split()


def test_topics_are_completed(broker: OttlaBroker) -> None:
    where = f"-b {broker.bootstrap}"
    assert completed(f"ottla topic describe {where} ") == ["orders", "orders-eu", "users"]
    assert completed(f"ottla topic describe {where} or") == ["orders", "orders-eu"]
    assert completed(f"ottla topic delete {where} orders ") == ["orders-eu", "users"]
    assert completed(f"ottla topic alter --bootstrap-server {broker.bootstrap} u") == ["users"]
    assert completed(f"ottla config describe {where} --topic u") == ["users"]
    assert completed(f"ottla topic alter {where} x") == []


def test_groups_are_completed(broker: OttlaBroker) -> None:
    where = f"-b {broker.bootstrap}"
    assert completed(f"ottla config describe {where} --group s") == ["shop"]
    assert completed(f"ottla group seek {where} s") == ["shop"]
    assert completed(f"ottla group seek new {where} --from-group s") == ["shop"]


def test_profiles_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[profiles.prod]\n"client.id" = "x"\n[profiles.dev]\n[profiles.pre]\n')
    known = {"OTTLA_CONFIG": str(file)}
    assert completed("ottla profile use ", **known) == ["dev", "pre", "prod"]
    for words in ("profile show", "profile delete", "topic list --profile", "profile set"):
        assert completed(f"ottla {words} p", **known) == ["pre", "prod"], words
    file.write_text("[")
    assert completed("ottla profile use ", **known) == []


def test_every_option_with_an_existing_name_is_completed() -> None:
    named = {"topic", "topics", "group", "groups", "from_group", "profile"}
    without = {
        f"{leaf.name} {one.name}"
        for leaf in LEAVES
        for one in leaf.parameters
        if (one.name in named or (leaf.words[0] == "profile" and one.name == "name"))
        and not getattr(one, "is_flag", False)  # a flag has no value
        and one._custom_shell_complete is None
    }
    commands = ("plan", "redrive", "reset", "run", "test", "validate")
    in_their_file = {f"pipeline {one} profile" for one in commands}
    assert without == {"topic create topics"} | in_their_file, "whose names are new"


def test_completion_uses_the_profile(broker: OttlaBroker, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[profiles.shop]\n"bootstrap.servers" = "{broker.bootstrap}"\n')
    known = {"OTTLA_CONFIG": str(file)}
    assert completed("ottla topic delete u", **known, OTTLA_PROFILE="shop") == ["users"]
    assert completed("ottla topic delete --profile shop u", **known) == ["users"]
    assert completed("ottla topic delete --profile none u", **known) == []


def test_zsh_and_fish_are_completed(broker: OttlaBroker) -> None:
    for shell in ("zsh", "fish"):
        said = ottla(
            env={
                "_OTTLA_COMPLETE": f"complete_{shell}",
                "_TYPER_COMPLETE_ARGS": f"ottla topic describe -b {broker.bootstrap} us",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            }
        )
        assert "users" in said.stdout
        assert "orders" not in said.stdout


def test_completion_is_silent_without_a_broker() -> None:
    assert completed("ottla topic describe -b 127.0.0.1:1 ") == []
    assert completed("ottla topic describe -b nonsense ") == []
    assert completed("ottla topic describe -X nonsense ") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never responds
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        assert completed(f"ottla topic describe -b {where} ") == []


def test_options_and_commands_are_completed_without_a_broker() -> None:
    assert completed("ottla topic cr") == ["create"]
    assert "--if-exists" in completed("ottla topic delete --if")


def test_script_is_for_the_named_shell(tmp_path: Path) -> None:
    for shell, word in (("zsh", "#compdef ottla"), ("fish", "complete --command"), ("bash", "-F")):
        for words in ((f"--show-completion={shell}",), ("--show-completion", shell)):
            done = ottla(*words)
            assert (done.returncode, done.stderr) == (0, "")
            assert word in done.stdout, words
        done = ottla("--install-completion", shell, env={"HOME": str(tmp_path)})
        assert done.returncode == 0
        assert shell in done.stdout
    assert "#compdef" in (tmp_path / ".zfunc" / "_ottla").read_text()
    done = ottla("--show-completion", "nu")
    assert done.returncode == 2
    assert "'nu' is not one of 'bash', 'zsh', 'fish'" in done.stderr


def test_script_is_for_the_current_shell_by_default() -> None:
    shells = {"bash": "complete -o default", "fish": "complete --command"}
    # With a pipe, bash keeps running instead of replacing itself by the last command.
    done = subprocess.run(
        ["bash", "-c", f"{BIN}/ottla --show-completion | cat"],
        capture_output=True,
        text=True,
        check=False,
        env=environment({"SHELL": "/usr/bin/fish"}),
    )
    assert shells["bash"] in done.stdout, done.stderr

    def nowhere() -> tuple[str, str]:
        raise shellingham.ShellDetectionFailure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shellingham, "detect_shell", nowhere)
        asked = ["--show-completion"]
        assert with_shell(asked, {"SHELL": "/usr/bin/fish"}) == [*asked, "fish"]
        assert with_shell(asked, {}) == asked
        assert with_shell(["topic", "list"], {"SHELL": "fish"}) == ["topic", "list"]
