"""`ottla` that is killed in a redrive, after it has sent records and before it commits them.

Each batch of the redrive has one record. OTTLA_MORTAL is the number of the commit that does not
happen.
"""

import os
import signal
from typing import Any, Final

from ottla.cli import entry
from ottla.pipeline import redrive
from ottla.sync import Admin

FATAL: Final = int(os.environ["OTTLA_MORTAL"])


class MortalAdmin(Admin):
    """An admin client whose process is killed at a commit."""

    commits = 0

    def alter_group_offsets(self, *arguments: Any) -> Any:
        """Commit offsets, except at the chosen time."""
        self.commits += 1
        if self.commits == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().alter_group_offsets(*arguments)


if __name__ == "__main__":
    redrive.Admin = MortalAdmin  # pyright: ignore[reportPrivateImportUsage]
    redrive.BATCH_RECORDS = 1  # pyright: ignore[reportConstantRedefinition, reportAttributeAccessIssue]
    entry.run()
