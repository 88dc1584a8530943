# Each target makes or reuses .venv; no environment has to be active.
#   make PYTHON=python3.12 test     another interpreter for a new .venv

PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The networks of the tests are small: one thread each, and one file of tests per core
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -x -q -n logical --maxprocesses 8 --dist loadfile
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: quickstart test test-all postgresql slurm lint type format benchmark

quickstart: $(STAMP)
	$(BIN)/python zoo_scripts/quickstart.py

test: lint type
	$(PYTEST)

# The tests marked as slow too
test-all: lint type postgresql slurm
	$(PYTEST) -m ""

# The server for the test of several workers: Debian's package
postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq postgresql; } \
	|| echo "No PostgreSQL server, and not the rights or no apt-get to install one: its test will be skipped"

# The Slurm of one node for the test of studies on a cluster: Debian's packages
slurm:
	@sh tests/one_node_slurm.sh

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(STAMP)
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script --short || exit 1; done

# PyTorch first and by itself, so that pip takes the pinned release, also where a CPU build of it is configured for pip.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(PIP_INSTALL) -e '.[dev,plots]'
	touch $@
