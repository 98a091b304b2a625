"""`ottla` with a source and a sink that kill the command at a chosen step of a query.

Only the command is killed, as `kill -9` of its process id does; Java and Spark's Python processes
have to end by themselves. OTTLA_MORTAL is the JSON of a `Kill` without the process.
"""

import json
import os

from ottla.cli import entry
from ottla.pipeline import registration
from pipeline.mortal_driver import Kill, mortal_source

if __name__ == "__main__":
    kill = Kill(**json.loads(os.environ["OTTLA_MORTAL"]), target=os.getpid())
    registration.RegisteredSource = mortal_source(kill)  # pyright: ignore[reportAttributeAccessIssue]
    entry.run()
