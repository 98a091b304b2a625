# `make run` and `make test` are the two commands to know; each installs what it needs into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
KERNEL := src/ottla/records/_kernel
FAST_PATH := src/ottla/broker/produce_fast_path

# Builds run with the pinned setuptools. pip compiles nothing: Python compiles what it imports.
PIP_INSTALL := DIST_EXTRA_CONFIG="$(CURDIR)/requirements/build.cfg" $(BIN)/python -m pip install \
	--quiet --disable-pip-version-check --no-compile --no-build-isolation --use-pep517

# Images of containers often forbid Python to write bytecode. Then each process compiles what it
# imports, and pytest rewrites the assertions of every module again: 24 s in each process of the tests.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run broker test judge check lint types types-source types-tests imports references docs bench soak format setup setup-run setup-broker java lock clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# `make run EXAMPLE=name` runs examples/name.
EXAMPLE  ?= sensors
EXAMPLES := $(patsubst examples/%/__main__.py,%,$(sort $(wildcard examples/*/__main__.py)))
WITHOUT_SPARK := messaging

ifneq ($(filter run,$(MAKECMDGOALS)),)
ifeq ($(filter $(EXAMPLE),$(EXAMPLES)),)
$(error There is no example "$(EXAMPLE)". The examples are: $(EXAMPLES))
endif
endif

run: $(if $(filter $(EXAMPLE),$(WITHOUT_SPARK)),setup-broker,java setup-run) ## Run an example with a broker on 127.0.0.1:9092 (EXAMPLE=logs|messaging|sensors, ARGS="--port 9093")
	@PYTHONPATH=examples exec $(BIN)/python -m $(EXAMPLE) $(ARGS)

broker: setup-broker ## Start only a broker, without Spark and Java; Ctrl-C stops it (ARGS="--port 9093")
	@exec $(BIN)/ottla dev $(ARGS)

STEP := $(BIN)/python tests/run_summary.py

# Not those that compare both kernels anyway or use none.
PLAIN_TESTS := tests/records tests/fuzz/test_fuzz_records.py tests/cli/test_version.py \
	tests/broker/handlers/test_produce.py \
	tests/broker/test_produce_fast_path.py::test_fast_path_does_what_the_handler_does \
	tests/broker/test_produce_fast_path.py::test_variants_of_ordinary_requests \
	--ignore=tests/records/test_kernel_twins.py --ignore=tests/records/test_compression.py

test: setup $(VENV)/.collected ## Run every check and every test, with the compiled extension and as plain Python
	@rm -f .test-times.jsonl
	@$(MAKE) --no-print-directory -j3 test-check test-all test-plain
	@$(STEP)

# The checks and the tests of the plain kernel take the processor time that the other tests leave.
# The first does not inherit the pipe of `make -j`, which Python closes, and which limits the checks.
.PHONY: test-check test-all test-plain
test-check:
	@MAKEFLAGS="$(filter-out -j% --jobserver-%,$(MAKEFLAGS))" nice $(STEP) --print-at-end check $(MAKE) --no-print-directory check

test-all:
	@$(STEP) tests $(BIN)/python -m pytest -n 5

test-plain:
	@OTTLA_TEST_KERNEL=python nice $(STEP) --print-at-end "plain kernel" \
		$(BIN)/python -m pytest -n 0 $(PLAIN_TESTS)

judge: setup ## Check the recorded answers of Kafka with a real one, and run the long tests with it (ARGS=--record)
	$(BIN)/python -m judges $(ARGS)

check: setup ## Run the checks side by side: lint, types, imports, references
	@$(MAKE) --no-print-directory -j5 --output-sync types-source types-tests lint imports references

lint: setup ## Check style and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Two processes of pyright take less processor time than one with two threads, which each check
# files of all folders. A larger young generation saves garbage collections.
PYRIGHT := NODE_OPTIONS=--max-semi-space-size=64 $(BIN)/pyright

types: setup ## Check types with pyright in strict mode
	@$(MAKE) --no-print-directory -j2 --output-sync types-source types-tests

types-source: setup ## Check the types of everything but the tests
	$(PYRIGHT) src benchmarks docs examples judges setup.py

types-tests: setup ## Check the types of the tests
	$(PYRIGHT) tests

imports: setup ## Check that folders import only folders below them
	$(BIN)/lint-imports

references: setup ## Check that docs/reference/ matches the tables in the code
	$(BIN)/python docs/reference/generate.py --check

docs: setup ## Write docs/reference/ from the tables in the code
	$(BIN)/python docs/reference/generate.py

bench: setup ## Run the benchmarks beside the peers; write JSON to benchmarks/results/
	$(BIN)/python benchmarks/protocol.py
	$(BIN)/python benchmarks/records.py
	$(BIN)/python benchmarks/batch_compression.py
	$(BIN)/python benchmarks/log.py
	$(BIN)/python benchmarks/replication.py
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/opening.py
	$(BIN)/python benchmarks/many_partitions.py
	$(BIN)/python benchmarks/coordination.py
	$(BIN)/python benchmarks/simulation.py
	$(BIN)/python benchmarks/testing_clusters.py
	$(BIN)/python benchmarks/compaction.py
	$(BIN)/python benchmarks/bystanders.py
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/collect.py
	$(BIN)/python benchmarks/spark.py
	$(BIN)/python benchmarks/pipelines.py
	$(BIN)/python benchmarks/broker_vs_kafka
	$(BIN)/python benchmarks/cluster_vs_kafka.py --idle
	$(BIN)/python benchmarks/cluster_operations.py
	$(BIN)/python benchmarks/balance.py
	$(BIN)/python benchmarks/failover.py
	$(BIN)/python benchmarks/one_broker_before.py

soak: setup ## Run every test with every crash point, seed and history, and ten times as many examples
	OTTLA_FUZZ_SCALE=10 $(BIN)/python -m pytest -n 4
	OTTLA_FUZZ_SCALE=10 OTTLA_TEST_KERNEL=python $(BIN)/python -m pytest -n 2 $(PLAIN_TESTS)

format: setup ## Format the source with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(VENV)/.dev-installed $(VENV)/.built ## Install everything for development into .venv

setup-run: $(VENV)/.run-installed $(VENV)/.built ## Install only what `make run` needs into .venv

setup-broker: $(VENV)/.broker-installed $(VENV)/.built ## Install only what `make broker` needs into .venv

CHECK_PYTHON := $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Ottla needs Python 3.11 or newer, but $(PYTHON) is {v[0]}.{v[1]}. Choose another: make PYTHON=python3.12")'

# `make run` checks this first: it would fail without Java after it has installed 840 MB.
java: ## Check that there is a Java runtime for Spark
	@$(CHECK_PYTHON)
	@PYTHONPATH=src $(PYTHON) -m ottla.pipeline.java || \
		{ echo 'Nothing was installed. `make broker` starts a broker without Spark and Java.' >&2; exit 1; }

$(VENV)/.build-installed: requirements/build.lock
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes -r requirements/build.lock
	@touch $@

# pip installs one thing at a time, also with `make -j`: hence the order-only prerequisites.
$(VENV)/.broker-installed: requirements/broker.lock $(VENV)/.build-installed | $(VENV)/.built
	$(PIP_INSTALL) --require-hashes -r requirements/broker.lock
	@touch $@

$(VENV)/.run-installed: requirements/run.lock $(VENV)/.build-installed | $(VENV)/.built
	$(PIP_INSTALL) --require-hashes -r requirements/run.lock
	@touch $@

# Everything is compiled before the tests, or the compiler's warnings about others' code would fail them.
$(VENV)/.dev-installed: requirements/dev.lock $(VENV)/.run-installed
	$(PIP_INSTALL) --require-hashes -r requirements/dev.lock
	@$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true  # some templates are not Python
	@touch $@

# Collecting the tests once writes their bytecode; otherwise all processes of the first run do so.
$(VENV)/.collected: $(VENV)/.dev-installed | $(VENV)/.built
	@$(BIN)/python -m pytest --collect-only --quiet > /dev/null || true  # the run reports errors
	@touch $@

# Without a C compiler this step still succeeds: the kernel then runs as plain Python.
$(VENV)/.built: $(VENV)/.build-installed pyproject.toml setup.py $(wildcard $(KERNEL)/*.py $(KERNEL)/*.pxd $(FAST_PATH).py $(FAST_PATH).pxd)
	$(PIP_INSTALL) --no-deps --editable .
	@$(BIN)/python -m compileall -q src examples  # Spark starts many Python processes at once
	@touch $@

UV_COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --allow-unsafe
PINNED     := --constraint requirements/dev.lock

lock: ## Resolve the pinned versions again (needs uv)
	$(UV_COMPILE) pyproject.toml --group dev --extra avro --extra protobuf --extra spark --output-file requirements/dev.lock
	$(UV_COMPILE) $(PINNED) pyproject.toml --group build --extra spark --output-file requirements/run.lock
	$(UV_COMPILE) $(PINNED) pyproject.toml --group build --output-file requirements/broker.lock
	$(UV_COMPILE) $(PINNED) --group build --output-file requirements/build.lock
	$(UV_COMPILE) $(PINNED) pyproject.toml --all-extras --output-file requirements/extras.lock

clean: ## Remove .venv and everything that builds and tests leave behind
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .test-times.jsonl src/ottla.egg-info
	rm -f $(KERNEL)/*.so $(FAST_PATH).*.so
