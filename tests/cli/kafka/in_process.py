"""Runs Ottla's versions of Kafka's tools in this process, because starting one takes longer."""

import contextlib
import io
import os
import sys
from importlib import import_module
from unittest.mock import patch

from cli.scripts import PLAIN
from kafka_tools import Said
from ottla.cli.kafka import scripts


def run_here(tool: str, *arguments: str) -> Said:
    """Run a tool by the name of its script, without profiles."""
    script = getattr(scripts, tool.removeprefix("kafka-").replace("-", "_"))
    assert isinstance(script, scripts.Script)
    run = import_module(script.module).run
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        patch.object(sys, "argv", [tool, *arguments]),
        patch.dict(os.environ, {**PLAIN, "OTTLA_CONFIG": os.devnull}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Said(code, out.getvalue(), err.getvalue())
