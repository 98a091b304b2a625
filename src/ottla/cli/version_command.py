"""The command `ottla version`, as it stands beside the others."""

from ottla.cli.declaration import answers
from ottla.cli.version import answer

show = answers(answer)
