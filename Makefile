# Every command of the project. 'make help' lists them; each does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
export SLUICE_TIERING_JARS ?= $(CURDIR)/.cache/jars
FLUSS ?= embedded
WORKERS ?= 2
# Hypothesis tries the same examples each time here; "default" tries others, "nightly" many more.
export HYPOTHESIS_PROFILE ?= ci
# Drawn once: all workers and second tries walk sets in the same order. The run prints it.
ifndef PYTHONHASHSEED
PYTHONHASHSEED := $(shell echo $$((RANDOM * 32768 + RANDOM)))
endif
export PYTHONHASHSEED
# Runs that share a FLAKY_LIST are judged as one: those of one make, or of several that are given it.
FLAKY_LIST := $(or $(FLAKY_LIST),$(shell mktemp -u -t sluice-flaky-XXXXXX))
# Groups of tests start in the order of tests/conftest.py.
PYTEST = $(PYTHON) -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --rerun-alone \
  --durations=15 --durations-min=2 --flaky-list=$(FLAKY_LIST)
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python

.PHONY: help setup demo quick-java test test-slow test-long test-full lint format bench matrix protos zip lock docs config-docs clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## virtual environment, packages, Java, jars (nothing to do a second time)
	@scripts/setup.sh

demo: setup ## the whole way on real data: server, load, Airflow, Spark, lake, comparison (FLUSS=real)
	@$(PYTHON) -m demo --fluss $(FLUSS)

matrix: setup ## scenarios against the embedded server and a real Fluss, every answer compared
	@$(PYTHON) -m sluice.testing.conformance $(ARGS)

quick-java: setup
	@$(PYTHON) -m tests.support.quick_java

test: setup quick-java lint ## lint and the quick tests (at most 8 minutes on 2 cores)
	$(PYTEST) -m "not slow and not long" $(ARGS)

test-slow: setup quick-java ## the slow tests, one case of each kind
	$(PYTEST) -m "slow and not long" $(ARGS)

test-long: setup quick-java ## many seeds, every failure case, S3, other versions (at most 90 minutes)
	$(PYTEST) -m long $(ARGS)

test-full: test test-slow test-long ## everything

lint: setup ## ruff, mypy, the import contract, generated code compared with protos/
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache | tail -n 12
	@$(PYTHON) scripts/gen_protos.py --check

format: setup ## put the code into form
	@.venv/bin/ruff check --fix -q . ; .venv/bin/ruff format -q .

bench: setup ## benchmarks: name, value, unit, ratio (BENCH_JSON=file for machines)
	@$(PYTHON) -m bench $(ARGS)

protos: setup ## generate sluice/wire from protos/
	@$(PYTHON) scripts/gen_protos.py

docs: setup quick-java config-docs ## write what pages show of outputs, settings and commands (PAGES=...)
	@$(PYTHON) scripts/command_docs.py
	@$(PYTHON) -m tests.docs.runner --write $(PAGES)

config-docs: setup ## write docs/configuration.md from sluice/config.py
	@$(PYTHON) scripts/config_docs.py

zip: setup ## build/sluice.zip and the driver's script, for spark-submit
	@.venv/bin/sluice spark-files --copy build

LOCK = .venv/bin/uv pip compile --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-annotate --no-header -q
# Brings the protoc of the oldest protobuf in pyproject.toml: 1.72.1 has protoc 30.0, for 6.30.0.
PROTOC = grpcio-tools==1.72.1

lock: setup ## write requirements.lock and protos/requirements.lock anew
	@$(LOCK) pyproject.toml --all-extras --group dev -o requirements.lock
	@echo "$(PROTOC)" | $(LOCK) - --no-deps --universal -o protos/requirements.lock

clean: ## remove what setup and builds made
	rm -rf .venv .cache build dist *.egg-info
