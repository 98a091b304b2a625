"""Completion in a real bash, which breaks words at `:` and `=`."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from cli.scripts import BIN, ottla
from cli.terminal import Terminal
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.sync import Admin

FOUND = shutil.which("bash")
pytestmark = pytest.mark.skipif(FOUND is None, reason="there is no bash, whose keys these are")

END = "%end"  # typed after a word, to show where it ends


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for name in ("audit", "orders", "orders-eu"):
                admin.create_topic(name, 1)
            for name in ("team:blue", "team:red", "night shift"):
                admin.alter_group_offsets(name, {("orders", 0): 0}).or_raise()
        yield broker


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a home with completion installed, and with files that are named like topics."""
    home = tmp_path_factory.mktemp("home")
    for _ in range(2):  # the second installation changes nothing
        done = ottla("--install-completion", "bash", env={"HOME": str(home)})
        assert done.returncode == 0, done.stderr
    assert (home / ".bashrc").read_text().count("source") == 1
    (home / "autumn.txt").touch()
    (home / "xylophone.txt").touch()
    return home


def completed(home: Path, line: str) -> str:
    """Return the words of the line after Tab."""
    assert FOUND is not None
    surroundings = {
        "HOME": str(home),
        "PATH": f"{BIN}:/usr/bin:/bin",
        "INPUTRC": "/dev/null",
        "HISTFILE": "/dev/null",
        "TERM": "dumb",
    }
    options = ("--noprofile", "--rcfile", str(home / ".bashrc"), "-i")
    with Terminal(FOUND, *options, env=surroundings, folder=home) as bash:
        # Two strings, so that the echo of the typed line does not match.
        bash.type("shown() { printf '<%s>' \"$@\"; echo '.'over; }; PS1=rea'dy>'\n")
        bash.read_until("ready>")
        # Ctrl-A moves to the start: the words are printed, and the command does not run.
        bash.type(f"{line}\t{END}\x01shown \n")
        said = bash.read_until(">.over")
    return said.rpartition("<ottla>")[2].partition(".over")[0]


def words(*expected: str) -> str:
    return "".join(f"<{one}>" for one in (*expected[:-1], expected[-1] + END))


def test_topics_are_completed_after_an_address(home: Path, broker: OttlaBroker) -> None:
    where = broker.bootstrap
    assert completed(home, f"ottla topic describe -b {where} au") == words(
        "topic", "describe", "-b", where, "audit", ""
    )
    assert completed(home, f"ottla consume --bootstrap-server={where} au") == words(
        "consume", f"--bootstrap-server={where}", "audit", ""
    )
    assert completed(home, f"ottla consume -X client.id=foo -b {where} au") == words(
        "consume", "-X", "client.id=foo", "-b", where, "audit", ""
    )


def test_word_after_an_equals_sign_is_completed(home: Path, broker: OttlaBroker) -> None:
    where = broker.bootstrap
    assert completed(home, f"ottla config describe -b {where} --topic=au") == words(
        "config", "describe", "-b", where, "--topic=audit", ""
    )
    assert completed(home, f"ottla config describe -b {where} --topic=ord") == words(
        "config", "describe", "-b", where, "--topic=orders"
    )


def test_name_with_a_colon_or_space_is_completed(home: Path, broker: OttlaBroker) -> None:
    begin, where = ("group", "describe", "-b"), broker.bootstrap
    line = f"ottla group describe -b {where}"
    assert completed(home, f"{line} te") == words(*begin, where, "team:")
    assert completed(home, f"{line} team:b") == words(*begin, where, "team:blue", "")
    assert completed(home, f"{line} night") == words(*begin, where, "night shift", "")
    assert completed(home, f"{line} 'night s") == words(*begin, where, "night shift", "")


def test_files_are_offered_only_where_files_belong(home: Path, broker: OttlaBroker) -> None:
    where = broker.bootstrap
    assert completed(home, f"ottla topic describe -b {where} xy") == words(
        "topic", "describe", "-b", where, "xy"
    )
    assert completed(home, "ottla topic describe -b 127.0.0.1:1 xy") == words(
        "topic", "describe", "-b", "127.0.0.1:1", "xy"
    )
    assert completed(home, "ottla broker --config xy") == words(
        "broker", "--config", "xylophone.txt", ""
    )
