"""Data directories that do not fit the coordination of a broker are refused at the start."""

from pathlib import Path

import pytest

from ottla.broker import service
from ottla.broker.stop_signals import StopSignals
from ottla.errors import OttlaError
from ottla.settings.config_parser import broker_config_of

NOBODY = "127.0.0.1:1"  # refused before anything is asked


def run(data: Path, **settings: str) -> None:
    config = broker_config_of(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    service.run(config, lambda node: None, StopSignals())


def test_directory_of_a_single_broker_needs_no_zookeeper(tmp_path: Path) -> None:
    (tmp_path / service.COORDINATION_FILE).touch()
    with pytest.raises(OttlaError, match=r"a single broker without ZooKeeper .*cluster adopt"):
        run(tmp_path, zookeeper_connect=NOBODY)


def test_partitions_of_an_unknown_cluster_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").touch()
    with pytest.raises(OttlaError, match=r"partitions of an unknown cluster: it has no meta"):
        run(tmp_path, zookeeper_connect=NOBODY)


def test_directory_of_a_cluster_names_its_setting(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=3\n")
    with pytest.raises(OttlaError, match=r"uses ZooKeeper, set zookeeper\.connect"):
        run(tmp_path)


def test_broker_without_an_id_is_refused_if_none_is_generated(tmp_path: Path) -> None:
    with pytest.raises(OttlaError, match=r"the broker has no id: set node\.id"):
        run(tmp_path / "new", zookeeper_connect=NOBODY, broker_id_generation_enable="false")
    assert not (tmp_path / "new").exists()
