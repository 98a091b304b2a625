"""`ottla broker` and `ottla dev` as processes, with a client that is not ours."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka

OTTLA = str(Path(sys.executable).parent / "ottla")


class Running:
    def __init__(self, process: subprocess.Popen[str], address: str, told: str) -> None:
        self.process = process
        self.address = address
        self.told = told

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def dev(folder: Path) -> Generator[Running]:
    process = subprocess.Popen(
        [OTTLA, "dev", "--port", "0", "--data", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.search(r"listens on (\S+)\. Its data are in (\S+)\.", told)
        if found is None:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        yield Running(process, found[1], told)
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [OTTLA, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def values(address: str) -> list[bytes]:
    # Any: the client has no types.
    client: Any = kafka
    consumer = client.KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=500
    )
    try:
        partition = client.TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [record.value for record in consumer]
    finally:
        consumer.close()


def test_dev_serves_a_client_and_has_its_records_again(tmp_path: Path) -> None:
    with dev(tmp_path) as running:
        client: Any = kafka
        producer = client.KafkaProducer(bootstrap_servers=running.address)
        for number in range(100):
            producer.send("t", b"%d" % number)
        producer.flush(30)
        producer.close()
        assert values(running.address) == [b"%d" % number for number in range(100)]
        assert running.stop() == 0
    with dev(tmp_path) as running:
        assert values(running.address) == [b"%d" % number for number in range(100)]


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with dev(tmp_path):
        code, told = refused("dev", "--port", "0", "--data", str(tmp_path))
        assert code == 1
        assert "in use by another process" in told


def test_a_port_that_is_taken_names_its_holder_and_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        code, told = refused("dev", "--port", str(port), "--data", str(tmp_path))
        assert code == 1
        assert f"127.0.0.1:{port} is taken" in told
        assert "pid" in told
        assert "--port N" in told


def test_a_wrong_file_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnum.partitions=zero\n")
    code, told = refused("broker", "--config", str(file))
    assert code == 2
    assert "server.properties" in told
    assert "num.partitions" in told
    code, told = refused("broker", "--override", "zookeeper.connect=here:2181")
    assert code == 1
    assert "zookeeper.connect" in told
