"""The `ottla` command: it gathers the commands and turns outcomes into exit codes.

Invariant: 0 is success, 1 a failure that was explained, 2 a wrong use. With `-o json` stdout
carries one JSON object and nothing else, or one a line where a command shows a stream of them.
"""

import typer

from ottla.cli import broker, log, version

app = typer.Typer(
    name="ottla",
    help="Event streaming in Python, with the wire protocol and the files of Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
    rich_markup_mode="markdown",
)
app.command("version")(version.show)
app.command("broker")(broker.broker)
app.command("dev")(broker.dev)
app.add_typer(log.app, name="log")


@app.callback()
def ottla() -> None:
    """Event streaming in Python, with the wire protocol and the files of Kafka."""


def run() -> None:
    """The console script."""
    app()
