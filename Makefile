# Penstock: everything a developer or an operator types. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup up run test test-full check fmt proto web bench bench-peers bench-latency lock wheels clean

# The first Python that is new enough, unless PYTHON names one.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
UV := $(shell command -v uv || echo .tools/bin/uv)
BIN := .venv/bin
SOURCES := libs services proto benchmarks tests
ARGS ?=

# Trust the machine's certificates where it has any, as pip and curl do; uv's own list is the fallback.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),)
export UV_SYSTEM_CERTS := true
endif

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup: ## install everything into .venv and build the bridge; needs Python 3.11 or later and nothing else
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed; set PYTHON to one" >&2; exit 1; }
	@test -x "$(UV)" || { echo "installing uv into .tools"; $(PYTHON) -m pip install -q --target .tools uv || \
	  { $(PYTHON) -m venv .tools && .tools/bin/pip install -q uv; }; }
	@$(UV) venv -q --allow-existing --python "$(PYTHON)" .venv
	@$(UV) pip sync -q --python $(BIN)/python requirements.lock
	@$(BIN)/python -m penstock.spark.build

up: setup ## start Penstock with everything that it needs; Ctrl-C stops it
	@exec $(BIN)/penstock up $(ARGS)

run: setup ## run one query: make run SQL=examples/first.sql
	@test -n "$(SQL)" || { echo "name a file: make run SQL=examples/first.sql" >&2; exit 2; }
	@exec $(BIN)/penstock run $(ARGS) $(SQL)

test: setup ## run the tests
	@$(BIN)/pytest $(ARGS)

test-full: setup ## run the tests at their full length (soaks, all seeds)
	@PENSTOCK_TEST_FULL=1 $(BIN)/pytest $(ARGS)

check: setup ## lint, check formatting, types and generated code
	@$(BIN)/python proto/generate.py --check
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check -q $(SOURCES)
	@$(BIN)/mypy $(SOURCES)

fmt: setup ## format the code and sort its imports
	@$(BIN)/ruff check -q --fix $(SOURCES)
	@$(BIN)/ruff format -q $(SOURCES)

proto: setup ## generate code from proto/
	@$(BIN)/python proto/generate.py

web: setup ## build the console
	@echo "there is no console yet" >&2; exit 1

bench: setup ## measure everything against its peers: make bench ARGS=--quick
	@for benchmark in engine startup formats stateless generator latency windows batch_engines updating joins checkpoints recovery network scaling control udfs; do $(BIN)/python benchmarks/$$benchmark.py $(ARGS); done

bench-peers: setup ## Nexmark beside Flink, Structured Streaming and Bytewax: make bench-peers ARGS=--quick
	@PYTHONPATH=benchmarks $(BIN)/python -m peers $(ARGS)

bench-latency: setup ## latency beside the same: make bench-latency ARGS=--quick
	@PYTHONPATH=benchmarks $(BIN)/python -m peers.latency $(ARGS)

lock: ## resolve all dependencies anew into requirements.lock
	@$(UV) lock --upgrade -q
	@$(UV) export -q --frozen --all-packages --all-groups --no-header --no-annotate -o requirements.lock

wheels: setup ## build the wheels into dist/, with the bridge in its own
	@$(BIN)/python -m penstock.spark.build --into libs/spark/src/penstock/spark/jvm
	@$(UV) build -q --wheel --all-packages --out-dir dist
	@rm -f libs/spark/src/penstock/spark/jvm/*.jar

clean: ## remove the environment and everything built here
	@rm -rf .venv .tools dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
