# Each target sets up what it needs in ./.venv, once: again only when the project's requirements change.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2

# Tests and the demonstration work on small graphs, where threads only wait for each other.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test test-slow test-all lint clean

help:
	@echo "make demo      the whole way in a minute: train, diagnose, fit, compare; writes demo-out/report.html"
	@echo "make test      the tests"
	@echo "make test-slow only the slow tests"
	@echo "make test-all  the same and the slow ones"
	@echo "make lint      style and types"

demo: $(STAMP)
	@$(BIN)/aggbuffer demo --out demo-out

test: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) -m slow

test-all: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) -m ""

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --exclude '*.md' .
	@$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	@python=$$(PYTHON='$(PYTHON)' bash tools/find-python) && \
	  echo "Setting up $(VENV) with $$($$python --version); this happens once and takes a few minutes" && \
	  $$python -m venv --clear $(VENV)
	@echo "  1/2 PyTorch for CPUs (200 MB)" && $(PIP) torch
	@echo "  2/2 aggbuffer and its tools" && $(PIP) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) demo-out build dist
