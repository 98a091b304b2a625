"""The child process that cleans one log: job on standard input, events on standard output.

Invariant: the process ends when its standard input is closed. It runs at low priority and writes
`.cleaned` files only. Failures are printed to standard error, with an exit code other than 0.

Run as `python -m ottla.log.cleaner.cleaner_process`; both sides send one JSON value per line.
"""

import os
import sys
import threading
import time
from typing import Final

import msgspec

from ottla.errors import StorageFailure
from ottla.log.cleaner.compaction import CleaningJob, clean
from ottla.log.files import OsDisk
from ottla.records.errors import CorruptRecords

NICENESS: Final = 10  # lower priority than the broker
ABANDONED: Final = 3


def main() -> int:
    """Run one job; return the exit code."""
    os.nice(NICENESS)
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=CleaningJob)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        for news in clean(OsDisk(), job, clock=time.monotonic, sleep=time.sleep):
            sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
            sys.stdout.buffer.flush()
    except (CorruptRecords, StorageFailure, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _end_with_input() -> None:
    """Wait until the broker closes its end, which also happens when it is killed."""
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    os._exit(ABANDONED)


if __name__ == "__main__":
    # Not sys.exit: the interpreter would abort while the daemon thread holds stdin.
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
