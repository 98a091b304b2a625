"""Ottla: event streaming in Python, with the wire protocol and the files of Kafka."""

from typing import Final

# Here and not only in what is installed: to look that up takes longer than to start a listener.
__version__: Final = "0.1.0.dev0"
