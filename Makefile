# Each target sets up what it needs in ./.venv, once: again only when the project's requirements change.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2

# Tests and the demonstration work on small graphs, where threads only wait for each other.
export OMP_NUM_THREADS ?= 1

# DGL wants an older world than ours, so its part of the benchmarks runs in an environment of its own.
DGL_VENV := benchmarks/.venv-dgl
DGL_STAMP := $(DGL_VENV)/.installed
DGL_PIP := $(DGL_VENV)/bin/python -m pip install -qq --disable-pip-version-check
PYTHON_DGL ?= python3.11

.PHONY: help demo test test-slow test-all lint docs clean bench bench-dgl

help:
	@echo "make demo      the whole way in a minute: train, diagnose, fit, compare; writes demo-out/report.html"
	@echo "make test      the tests"
	@echo "make test-slow only the slow tests"
	@echo "make test-all  the same and the slow ones"
	@echo "make lint      style and types"
	@echo "make docs      the documentation as a site in build/site, with its links checked"
	@echo "make bench     times a training step beside plain PyG and, after make bench-dgl, DGL; python -m benchmarks has more"
	@echo "make bench-dgl sets up an environment with DGL, for Python 3.11 or older (PYTHON_DGL=...)"

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

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site
	@$(BIN)/python tools/check_links.py build/site

bench: $(STAMP)
	@$(BIN)/python -m benchmarks step

bench-dgl: $(DGL_STAMP)

$(DGL_STAMP): benchmarks/requirements-dgl.txt
	@echo "Setting up $(DGL_VENV) with $$($(PYTHON_DGL) --version); this happens once and takes a few minutes"
	@$(PYTHON_DGL) -m venv --clear $(DGL_VENV)
	@echo "  1/2 PyTorch for CPUs (200 MB)" && $(DGL_PIP) --requirement benchmarks/requirements-dgl.txt
	@echo "  2/2 DGL" && $(DGL_PIP) --no-deps dgl==1.1.3 'setuptools<70'
	@DGLBACKEND=pytorch $(DGL_VENV)/bin/python -c 'import dgl' && touch $@

$(STAMP): pyproject.toml constraints.txt
	@python=$$(PYTHON='$(PYTHON)' bash tools/find-python) && \
	  echo "Setting up $(VENV) with $$($$python --version); this happens once and takes a few minutes" && \
	  $$python -m venv --clear $(VENV)
	@echo "  1/2 PyTorch for CPUs (200 MB)" && $(PIP) torch
	@echo "  2/2 aggbuffer and its tools" && $(PIP) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(DGL_VENV) demo-out build dist
