# Every target works from a fresh clone: each sets up .venv first, if it is not there yet. `demo` installs what it needs,
# and the targets of developers add the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.dev
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO   := demo
# Files that Git tracks: one that a user has saved in the clone is not checked.
CODE    = $(wildcard $(shell git ls-files '*.py' '*.ipynb'))
TYPED   = $(filter replaybench/%.py tests/%.py,$(CODE))
define CHECK
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy $(TYPED)
endef

.PHONY: help demo test test-all bench tables mutants docs clean

help:                ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP)       ## Install, run the demo study (about 2 minutes on 2 cores), print its scores
	$(BIN)/replaybench sweep $(DEMO)

test: $(DEV)         ## Install, check style and types, run the tests that are not slow
	$(CHECK)
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow"

test-all: $(DEV)     ## The same with all tests: random kills, browsers, clusters, simulations, documents too
	$(CHECK)
	$(BIN)/pytest -q -n 2 --dist worksteal

bench: $(DEV)        ## Time everything against its peers, side by side, and store what was found
	$(BIN)/python benchmarks/speed/bench_core.py
	$(BIN)/python benchmarks/speed/bench_replay.py
	$(BIN)/python benchmarks/speed/bench_order.py
	$(BIN)/python benchmarks/speed/bench_mujoco.py
	$(BIN)/python benchmarks/speed/bench_bullet.py
	$(BIN)/python benchmarks/speed/bench_flow.py
	$(BIN)/python benchmarks/speed/bench_learners.py
	$(BIN)/python benchmarks/speed/bench_peers.py
	$(BIN)/python benchmarks/speed/bench_solved.py
	$(BIN)/python benchmarks/speed/bench_files.py

tables: $(DEV)       ## Write the numbers of the documents anew from the stored results
	$(BIN)/python -m benchmarks.tables

mutants: $(DEV)      ## Break the package on purpose, place by place, and see which tests notice (about half an hour)
	$(BIN)/python -m benchmarks.mutants

docs: $(VENV)/.docs  ## Build the documentation site in build/site (half a minute); links that lead nowhere are errors
	PYTHONPATH=. $(BIN)/python docs/make_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean:               ## Remove the environment, runs and caches of this folder
	rm -rf $(VENV) build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e .
	@touch $@

$(DEV): $(STAMP)
	$(PIP) -e ".[dev]"
	@touch $@

$(VENV)/.docs: $(DEV)
	$(PIP) -e ".[docs]"
	@touch $@
