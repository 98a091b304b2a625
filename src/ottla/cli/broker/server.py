"""Runs a broker in the foreground: `ottla dev`, and what `ottla broker` needs.

With `-o json` and `-o yaml`, stdout carries one object when the broker listens, and one if it
fails; otherwise `dev` prints how to connect. Log lines go to stderr.

The broker is imported when it is used, so that other commands start fast.
"""

import errno
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ottla.broker.stop_signals import StopSignals
from ottla.cli import gc_freeze
from ottla.cli.declaration import OutputOption
from ottla.cli.directory_option import DataDirectory
from ottla.cli.failures import port_remedy
from ottla.cli.output import Json, Output
from ottla.cli.result import Failure, write_object

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.errors import StorageFailure
    from ottla.settings.config import Config

PREFIX: Final = "ottla: "
"""Begins every line of an error, as with other commands."""

FormatOption = Annotated[
    Literal["text", "json"],
    typer.Option(
        "--log-format", help="Write the log to stderr as key=value text or as JSON lines."
    ),
]
LevelOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="Log only events of this level or above."),
]


def dev(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="Listen on this port; 0 selects a free port.",
        ),
    ] = 9092,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Store the data in this directory.",
            click_type=DataDirectory(),
        ),
    ] = Path(".ottla"),
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override", metavar="KEY=VALUE", help="Set a broker setting; repeat for several."
        ),
    ] = None,
    log_format: FormatOption = "text",
    log_level: LevelOption = "info",
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a broker for development on this machine, with its data in ./.ottla.

    The broker serves Prometheus metrics on http://127.0.0.1:9192/metrics. If port 9192 is in use,
    the broker runs without metrics. To serve the metrics on another port, pass --override
    ottla.metrics.listener=127.0.0.1:PORT.
    """
    try:
        files = (data / "data").absolute()
    except FileNotFoundError:
        why = "the current directory was deleted: change to another one, or set --data /DIR"
        _complain(Failure(why), output)
        raise typer.Exit(1) from None
    if (other := _other_owner(data.absolute())) is not None:
        _complain(Failure(f"{data}: {other}", "DATA_IN_USE"), output)
        raise typer.Exit(1)
    settings = [
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"log.dirs={files}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "group.initial.rebalance.delay.ms=0",
        "ottla.metrics.listener=127.0.0.1:9192",
        *(override or []),
    ]

    def explain(node: "Node") -> None:
        where, ottla = next(iter(node.addresses.values())), _command()
        if output is not Output.TABLE:
            own: dict[str, Json] = {"bootstrap_server": str(where), "data": str(data.absolute())}
            show_started({**own, **broker_facts(node)}, output)
            return
        typer.echo(
            f"Ottla listens on {where}. Data directory: {data.absolute()}. Press Ctrl-C to stop.\n"
            f"\n"
            f"  shell    echo hello | {ottla} produce events -b {where}\n"
            f"           {ottla} consume events -b {where}\n"
            f"  Python   from ottla.sync import Producer\n"
            f"           with Producer(bootstrap_servers='{where}') as producer:\n"
            f"               producer.send('events', b'hello')\n"
            f"  kcat     kcat -b {where} -t events -C -e\n"
            f"  Kafka    kafka-topics.sh --bootstrap-server {where} --list\n"
            f"  files    {ottla} log dump {shlex.quote(str(files))}\n"
            f"{_metrics(node)}"
            f"\n"
            f"Authentication is not supported yet: use this broker on trusted networks only."
        )

    signals: StopSignals = context.obj
    raise typer.Exit(
        served(
            None, "", settings, explain, log_format, log_level, signals, output, directory="--data"
        )
    )


def _other_owner(data: Path) -> str | None:
    """Return why `ottla dev` must not use a directory: it is that of another command."""
    from ottla.cli.cluster.local_layout import local_cluster_of
    from ottla.log.names import META_PROPERTIES

    if (cluster := local_cluster_of(data)) is not None:
        start = f"`ottla cluster start --data {shlex.quote(str(cluster))}`"
        return (
            f"this directory belongs to a local cluster: start it with {start}, or use another "
            "--data"
        )
    if (data / META_PROPERTIES).is_file():
        return (
            "this is a log directory of a broker: start the broker with "
            f"`ottla broker --override log.dirs={shlex.quote(str(data))}`, or use another --data"
        )
    return None


def broker_facts(node: "Node") -> dict[str, Json]:
    """Return what programs need to know about a running broker."""
    found: dict[str, Json] = {
        "broker": node.id,
        "listeners": {name: str(one) for name, one in node.addresses.items()},
        "metrics": None if node.metrics is None else f"http://{node.metrics}/metrics",
    }
    return found if node.no_metrics is None else {**found, "no_metrics": node.no_metrics}


def show_started(value: dict[str, Json], output: Output) -> None:
    """Write at once, because the broker keeps running."""
    write_object(value, output)
    sys.stdout.flush()


def _complain(failure: Failure, output: Output, prefix: str = PREFIX) -> None:
    if output is Output.TABLE:
        for line in failure.message.splitlines():
            typer.echo(f"{prefix}{line}", err=True)
    else:
        show_started({"error": failure.object()}, output)


def _metrics(node: "Node") -> str:
    """Return the line about metrics: the address, or why there is none and how to fix it."""
    if node.metrics is not None:
        return f"  metrics  http://{node.metrics}/metrics\n"
    if node.no_metrics is None:
        return ""
    flag = "--override ottla.metrics.listener=127.0.0.1:N"
    return f"  metrics  none: {node.no_metrics}. To use another port: {flag}\n"


def _command() -> str:
    """Return the command to type for `ottla`: its path, unless the shell finds it."""
    from shutil import which

    return "ottla" if which("ottla") else shlex.quote(os.path.abspath(sys.argv[0]))


def served(
    text: str | None,
    source: str,
    overrides: Sequence[str],
    started: "Callable[[Node], None]",
    log_format: str,
    log_level: str,
    signals: StopSignals,
    output: Output = Output.TABLE,
    *,
    prefix: str = PREFIX,
    directory: str = "log.dirs",
) -> int:
    """Serve until a signal; prints an error and returns the exit code.

    `directory` is the option or setting for the data directory.
    """
    from ottla.broker.event_lines import LineFormat
    from ottla.broker.service import log_to_stderr, run
    from ottla.coordination.errors import StoreInUse
    from ottla.errors import OttlaError, StorageFailure
    from ottla.settings.config_parser import broker_config
    from ottla.settings.invalid_settings import InvalidSettings
    from ottla.settings.properties import read_properties
    from ottla.transport.listener import AddressTaken

    try:
        config: Config = broker_config(
            None if text is None else read_properties(text, source), overrides
        )
    except InvalidSettings as error:
        apart = "\n" if output is Output.TABLE else "; "
        _complain(Failure(apart.join(map(str, error.problems)), "USAGE"), output, prefix)
        return 2
    log_to_stderr(LineFormat(log_format), log_level)

    def ready(node: "Node") -> None:
        gc_freeze.release()  # the open logs stay to the end, as the modules do
        started(node)

    try:
        run(config, ready, signals)
    except AddressTaken as error:
        _complain(Failure(f"{error}: {port_remedy(error.port)}", "ADDRESS_TAKEN"), output, prefix)
        return 1
    except StoreInUse as error:
        other = "`ottla dev --data DIR --port N`, `--override log.dirs=DIR`"
        _complain(Failure(f"{error}: {other}", "DATA_IN_USE"), output, prefix)
        return 1
    except StorageFailure as error:
        _complain(Failure(storage_error(error, directory)), output, prefix)
        return 1
    except OttlaError as error:
        _complain(Failure(str(error)), output, prefix)
        return 1
    return 0


def storage_error(error: "StorageFailure", directory: str) -> str:
    """Return the message of a storage failure, with a hint if the directory cannot be used."""
    cause = error.__cause__
    if isinstance(cause, PermissionError):
        return f"{error}: set {directory} to a directory that this user may write"
    if isinstance(cause, FileNotFoundError | NotADirectoryError | FileExistsError) or (
        isinstance(cause, OSError) and cause.errno == errno.EROFS
    ):
        return f"{error}: set {directory} to a directory that can be created and written"
    return str(error)
