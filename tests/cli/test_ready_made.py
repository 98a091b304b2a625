"""config/server.properties: valid settings, correct defaults, and a broker starts from it."""

import re
from pathlib import Path
from typing import Any

import kafka

from cli.test_broker import dev
from judges.ottla_broker import OttlaBroker
from ottla.settings.broker import BROKER
from ottla.settings.config_parser import broker_config
from ottla.settings.properties import read_properties

FILE = Path(__file__).parents[2] / "config" / "server.properties"
TEXT = FILE.read_text()

# Examples, not defaults.
SHOWN = {"advertised.listeners", "ottla.metrics.listener"}


def test_every_setting_is_valid_also_if_commented_out() -> None:
    text = re.sub(r"^#(?=[a-z])", "", TEXT, flags=re.MULTILINE)
    config = broker_config(read_properties(text, FILE.name))
    assert len(config.given) > 30
    assert not config.notices


def test_commented_out_settings_show_their_default() -> None:
    marked = re.findall(r"^#([a-z][a-z.]+)=(.*)$", TEXT, re.MULTILINE)
    assert len(marked) > 10
    plain = broker_config(read_properties(TEXT, FILE.name))
    for name, value in marked:
        if name not in SHOWN:
            given = broker_config(read_properties(f"{TEXT}\n{name}={value}\n", FILE.name))
            setting = BROKER.settings[name]
            assert given[setting] == plain[setting], name


def test_broker_starts_from_the_file(tmp_path: Path) -> None:
    with OttlaBroker(tmp_path, config=FILE) as broker:
        broker.start()
        client: Any = kafka  # it has no types
        producer = client.KafkaProducer(bootstrap_servers=broker.bootstrap)
        assert producer.send("t", b"a").get(30).offset == 0
        producer.close()
        assert broker.stop() == 0
        assert (tmp_path / "data" / "t-0").is_dir()


def test_dev_prints_how_to_connect_and_its_directory(tmp_path: Path) -> None:
    with dev(tmp_path) as running:
        assert running.process.stdout is not None
        told = running.told
        while "trusted networks" not in told:
            line = running.process.stdout.readline()
            assert line
            told += line
        names = ("produce events", "consume events", "log dump")
        others = ("Producer(bootstrap_servers=", "kcat -b", "kafka-topics.sh")
        for wanted in (*(f"ottla {one}" for one in names), *others):
            assert wanted in told
        assert told.count(running.address) == 6
        assert str(tmp_path) in told
        assert "Authentication is not supported yet" in told
