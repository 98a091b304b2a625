# `make run` and `make test` are all a newcomer needs; each sets up what is missing.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
KERNEL := src/ottla/records/kernel.py

.DEFAULT_GOAL := help
.PHONY: help setup run broker tour test judge check lint types imports references docs bench soak format lock clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.built ## the virtual environment, the pinned tools, the compiled kernel

$(VENV)/.installed: requirements/dev.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Ottla needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

# Without a C compiler this step still succeeds: the kernel then runs as plain Python.
$(VENV)/.built: $(VENV)/.installed pyproject.toml setup.py $(KERNEL) $(KERNEL:.py=.pxd)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src examples  # as pip does with what is not editable: Spark starts many processes
	@touch $@

run: setup ## readings, a broker on 127.0.0.1:9092 and a pipeline on Spark, kept in ./.ottla (ARGS="--port 9093")
	@PYTHONPATH=examples $(BIN)/python -m sensors.archive
	@PYTHONPATH=examples exec $(BIN)/python -m sensors $(ARGS)

broker: setup ## the broker alone, without Java (ARGS="--port 9093"); Ctrl-C stops it
	@exec $(BIN)/ottla dev $(ARGS)

tour: setup ## show the protocol, the records and the log without a broker
	@$(BIN)/ottla version
	@$(BIN)/python examples/first_look.py

test: setup check ## every check and every test, with the kernel compiled and as plain Python
	$(BIN)/python -m pytest -n 2
	OTTLA_TEST_KERNEL=python $(BIN)/python -m pytest -n 2 tests/records tests/fuzz/test_fuzz_records.py tests/cli/test_version.py

judge: setup ## check the recorded answers with a real Kafka, and run the long tests with it (ARGS=--record)
	$(BIN)/python -m judges $(ARGS)

check: lint types imports references ## ruff, pyright strict, import contracts, fresh references

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

imports: setup
	$(BIN)/lint-imports

references: setup
	$(BIN)/python docs/reference/generate.py --check

docs: setup ## write docs/reference/ anew from the tables
	$(BIN)/python docs/reference/generate.py

bench: setup ## measure beside the peers; tables on screen, JSON in benchmarks/results/
	$(BIN)/python benchmarks/protocol.py
	$(BIN)/python benchmarks/records.py
	$(BIN)/python benchmarks/batch_compression.py
	$(BIN)/python benchmarks/log.py
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/opening.py
	$(BIN)/python benchmarks/coordination.py
	$(BIN)/python benchmarks/compaction.py
	$(BIN)/python benchmarks/bystanders.py
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/spark.py
	$(BIN)/python benchmarks/broker_vs_kafka

soak: setup ## the long tests: fuzzing, crashes and models for ten times the usual
	OTTLA_FUZZ_SCALE=10 $(BIN)/python -m pytest -n 2 tests/fuzz tests/log tests/coordination tests/simulation

format: setup ## put the source into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## resolve the pinned versions anew (needs uv)
	uv pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-header --allow-unsafe --output-file requirements/dev.lock
	uv pip compile --quiet pyproject.toml --all-extras --constraint requirements/dev.lock --universal --python-version 3.11 --generate-hashes --no-header --output-file requirements/extras.lock

clean: ## remove everything that setup and the tests made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis src/ottla.egg-info
	rm -f src/ottla/records/kernel.*.so
