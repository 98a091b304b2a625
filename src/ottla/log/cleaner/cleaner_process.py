"""The process that cleans one log: a job on its standard input, news on its standard output.

Invariant: it lives as long as its standard input is open and no longer, gives way to everything
else on the machine, and writes nothing but `.cleaned` files. What goes wrong is on its standard
error, and it then ends with another code than 0.

Run as `python -m ottla.log.cleaner.cleaner_process`; both sides speak JSON, a line each.
"""

import os
import sys
import threading
import time
from typing import Final

import msgspec

from ottla.errors import StorageFailure
from ottla.log.cleaner.cleaning import CleaningJob, clean
from ottla.log.files import OsDisk
from ottla.records.errors import CorruptRecords

NICENESS: Final = 10  # half as important as what was never told how important it is
ABANDONED: Final = 3


def main() -> int:
    """Do one job; returns the exit code."""
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
    """Wait for the broker to close its end, which it does even when it is killed."""
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    os._exit(ABANDONED)


if __name__ == "__main__":
    # Not sys.exit: the thread still reads, and an interpreter that ends waits for nobody.
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
