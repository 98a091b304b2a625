"""The pipeline files here are not tests: Ottla's plugin would run theirs on Spark."""

collect_ignore_glob = ["*.yaml"]
