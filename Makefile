# The commands of the project. 'make help' lists them. Each one runs the set-up that it needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
export SLUICE_TIERING_JARS ?= $(CURDIR)/.cache/jars
FLUSS ?= embedded
WORKERS ?= 2
# Profile ci tries the same examples in each run, "default" other ones, "nightly" many more.
export HYPOTHESIS_PROFILE ?= ci
# One seed for all workers and reruns, so that they walk sets in the same order. The run prints it.
ifndef PYTHONHASHSEED
PYTHONHASHSEED := $(shell echo $$((RANDOM * 32768 + RANDOM)))
endif
export PYTHONHASHSEED
# Images for containers often turn Python's bytecode off. Then each of some thousand programs that
# the tests start compiles all modules it imports, and each worker rewrites all tests.
export PYTHONDONTWRITEBYTECODE :=
# Runs with the same FLAKY_LIST share one list of flaky tests. One make has one list.
FLAKY_LIST := $(or $(FLAKY_LIST),$(shell mktemp -u -t sluice-flaky-XXXXXX))
# Groups of tests start in the order of tests/conftest.py.
PYTEST = $(PYTHON) -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --rerun-alone \
  --durations=15 --durations-min=2 --flaky-list=$(FLAKY_LIST)
# The tests of one room: `make test ROOM=rounds`. Some rooms have tests elsewhere, too.
OF_ROOM = $(wildcard tests/unit/$(ROOM) tests/$(ROOM)) $(ALSO_$(ROOM))
ALSO_rounds = tests/simulation
ALSO_formats = tests/golden
ROOMS = $(sort $(filter-out __pycache__ support java_client unit,$(notdir $(patsubst %/,%,$(wildcard tests/unit/*/ tests/*/)))))
NO_ROOM = $(error there are no tests of a room '$(ROOM)': try one of $(ROOMS))
QUICK_TESTS = $(if $(ROOM),$(or $(strip $(OF_ROOM)),$(NO_ROOM)))
# Node.js of the lock file, for the page's front end
NPM = PATH="$(CURDIR)/.venv/bin:$$PATH" npm --prefix frontend
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python

.PHONY: help setup demo quick-java test test-slow test-long test-full lint format bench matrix protos page page-test zip lock docs config-docs clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## install the virtual environment, packages, Java and jars (a second run does nothing)
	@scripts/setup.sh

demo: setup ## tier real data with Airflow and Spark, compare lake and source (FLUSS=real: Apache Fluss; CATALOG=rest: REST catalog, S3)
	@$(PYTHON) -m demo --fluss $(FLUSS) --catalog $(or $(CATALOG),folder)

matrix: setup ## run the same scenarios on the embedded server and Apache Fluss, compare all answers
	@$(PYTHON) -m tests.conformance $(ARGS)

quick-java: setup
	@$(PYTHON) -m tests.support.harness.quick_java

test: setup quick-java $(if $(ROOM),,lint) ## run lint and the quick tests (ROOM=rounds: only those of one room)
	$(PYTEST) -m "not slow and not long" $(QUICK_TESTS) $(ARGS)

test-slow: setup quick-java ## run the slow tests, one case of each kind
	$(PYTEST) -m "slow and not long" $(ARGS)

test-long: setup quick-java ## run the long tests: many seeds, every failure case, S3, other versions (at most 90 minutes)
	$(PYTEST) -m long $(ARGS)

test-full: test test-slow test-long ## run all tests

lint: setup ## run ruff, mypy and the import contract, compare generated code with protos/
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@$(NPM) run --silent lint & .venv/bin/mypy && wait $$!
	@.venv/bin/lint-imports --no-cache | tail -n 12
	@$(PYTHON) scripts/gen_protos.py --check
	@$(PYTHON) scripts/page_description.py --check

format: setup ## format the code
	@.venv/bin/ruff check --fix -q . ; .venv/bin/ruff format -q .

bench: setup ## run the benchmarks: name, value, unit, ratio (BENCH_JSON=FILE: also as JSON lines; FLINK=1: beside Flink)
	@FLINK=$(FLINK) $(PYTHON) -m bench $(ARGS)

protos: setup ## generate sluice/wire from protos/
	@$(PYTHON) scripts/gen_protos.py

docs: setup quick-java config-docs ## write the outputs, settings and commands that pages show (PAGES=...)
	@$(PYTHON) -m scripts.command_docs
	@$(PYTHON) -m tests.docs.runner --write $(PAGES)

page: setup ## build the page's front end into sluice/page/static
	@$(PYTHON) scripts/page_description.py
	@$(NPM) run --silent types
	@$(NPM) run --silent build

page-test: setup ## run the tests of the page's front end
	@$(NPM) test

config-docs: setup ## write docs/configuration.md and docs/catalogs/store-options.md from the code
	@$(PYTHON) -m scripts.config_docs
	@$(PYTHON) -m scripts.store_docs

zip: setup ## write build/sluice.zip and the driver's script, for spark-submit
	@.venv/bin/sluice spark-files --copy build

LOCK = .venv/bin/uv pip compile --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-annotate --no-header -q
# Has the protoc of the oldest protobuf in pyproject.toml: 1.72.1 has protoc 30.0, for 6.30.0.
PROTOC = grpcio-tools==1.72.1

lock: setup ## update requirements.lock and protos/requirements.lock
	@$(LOCK) pyproject.toml --all-extras --group dev -o requirements.lock
	@echo "$(PROTOC)" | $(LOCK) - --no-deps --universal -o protos/requirements.lock

clean: ## delete what setup and builds made
	rm -rf .venv .cache build dist *.egg-info
