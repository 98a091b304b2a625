"""The declaration of `ottla version`."""

from ottla.cli.declaration import answers
from ottla.cli.version import answer

show = answers(answer)
