"""The program that spark-submit runs: the `ottla` command, with the Java of spark-submit."""

import sys

from ottla.cli.entry import run

if __name__ == "__main__":
    del sys.path[0]  # the directory of this file, whose modules are not packages of their own
    run()
