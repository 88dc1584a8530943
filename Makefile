# Each target makes or reuses .venv; no environment has to be active.
#   make PYTHON=python3.12 test     another interpreter for a new .venv

PYTHON ?= python3

VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# The networks of the tests are small: one thread each, and one file of tests per core
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -x -q -n logical --maxprocesses 8 --dist loadfile
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: quickstart test test-all postgresql slurm lint type format benchmark dist check-dist check-wheel check-zoo docs notebooks

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

# The release, step by step as .github/workflows does it

dist: $(STAMP)
	$(BIN)/python -c "import shutil; shutil.rmtree('dist', ignore_errors=True)"
	$(BIN)/python -m build

# What they hold, and what the stock zoo does in an environment where this wheel is installed
check-dist: dist
	SB3_CAMP_DIST=$(CURDIR)/dist OMP_NUM_THREADS=1 $(BIN)/python -m pytest -x -q tests/test_packaging.py

# In an environment that holds nothing but the wheel and what it asks for: the quickstart, by default a short one
QUICKSTART ?= -n 5000 --n-episodes 500
check-wheel: FRESH := .venv-wheel
check-wheel: dist
	$(PYTHON) -m venv --clear $(FRESH)
	$(FRESH)/$(SCRIPTS)/python -m pip install --disable-pip-version-check -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(FRESH)/$(SCRIPTS)/python -m pip install --disable-pip-version-check -c constraints.txt dist/*.whl
	$(FRESH)/$(SCRIPTS)/sb3-camp --version
	$(FRESH)/$(SCRIPTS)/python zoo_scripts/quickstart.py -o $(FRESH)/quickstart $(QUICKSTART)

# The stock zoo does the same with this package as without, for the oldest and for the newest zoo
ZOO ?= oldest
check-zoo: FRESH := .venv-zoo-$(ZOO)
check-zoo:
	$(PYTHON) -m venv --clear $(FRESH)
	$(FRESH)/$(SCRIPTS)/python -m pip install --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(FRESH)/$(SCRIPTS)/python -m pip install --disable-pip-version-check -r .ci/zoo-$(ZOO).txt . pytest "setuptools>=77" wheel
	OMP_NUM_THREADS=1 $(FRESH)/$(SCRIPTS)/python -m pytest -x -q -m "" tests/test_stock_zoo.py

# The site, in docs/_build/html: warnings are errors, and what the pages refer to must be there
docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/site/check_links.py docs/_build/html

# The notebooks of the site with their pictures, to open and change, in docs/_build/notebooks
notebooks: $(DOCS_STAMP)
	@mkdir -p docs/_build/notebooks
	@for page in docs/notebooks/*.md; do \
	notebook="docs/_build/notebooks/$$(basename "$$page" .md).ipynb"; \
	$(BIN)/python -m jupytext --quiet --to ipynb --output "$$notebook" "$$page" \
	&& $(BIN)/jupyter-execute --inplace "$$notebook" || exit 1; done
	@ls docs/_build/notebooks/*.ipynb

$(DOCS_STAMP): $(STAMP) pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[docs]'
	touch $@

# PyTorch first and by itself, so that pip takes the pinned release, also where a CPU build of it is configured for pip.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(PIP_INSTALL) -e '.[dev,plots]'
	touch $@
