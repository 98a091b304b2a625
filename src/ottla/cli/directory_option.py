"""The type of options that name a directory to create."""

from typing import Any

import typer
from typer.models import TyperPath


class DataDirectory(TyperPath):
    """A directory; an empty name is refused, because it would be the current directory."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        if value == "":
            raise typer.BadParameter("the directory name must not be empty", ctx, param)
        return super().convert(value, param, ctx)
