"""Runs `ottla` in this process, because starting one takes longer."""

import contextlib
import io
import os
import sys
from unittest.mock import patch

from cli.scripts import PLAIN
from kafka_tools import Said
from ottla.broker.stop_signals import StopSignals
from ottla.cli import main


def ottla_here(*arguments: str) -> Said:
    """Run a command that is not a server, without profiles."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        patch.object(sys, "argv", ["ottla", *arguments]),
        patch.dict(os.environ, {**PLAIN, "OTTLA_CONFIG": os.devnull}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main.run(StopSignals())
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Said(code, out.getvalue(), err.getvalue())
