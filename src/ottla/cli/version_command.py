"""The declaration of `ottla version`, apart from `version.py`, which runs without Typer."""

from ottla.cli.declaration import answers
from ottla.cli.version import answer

show = answers(answer)
