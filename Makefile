# Needs Python 3.11 or later and nothing else: .venv is made and filled on first use.
# Another Python: make test PYTHON=python3.13      Some tests only: make test ARGS="tests/unit -k ledger"

VENV := .venv
BIN := $(VENV)/bin
EXTRAS := holder,analyst,node,postgresql,sklearn,dev
INSTALLED := $(VENV)/.installed
IS_RECENT := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(or $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python $(IS_RECENT) 2>/dev/null && echo $$python && break; done),python3)
ARGS ?=

# Two test workers on two cores: a BLAS that starts a thread per core in each of them only gets in its own way.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1

.DELETE_ON_ERROR:
.PHONY: help install demo demo-secure test check format bench faults experiments docs constraints clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv and install the package into it, editable

# The stamp is written last, so that an install that was cut off is done again. Without --clear an existing .venv is
# kept, and gets its pip if it lacks one.
$(INSTALLED): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		$(PYTHON) $(IS_RECENT) 2>/dev/null || \
			{ echo "Python 3.11 or later is needed; name one: make install PYTHON=/path/to/python"; exit 1; }; \
		$(PYTHON) -m venv $(VENV); }
	@echo "Installing into $(VENV); this takes a minute or two the first time."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

demo: $(INSTALLED) ## three hospitals, one posterior: the whole story on made data, into demo-output/
	@$(BIN)/noisewise demo --output demo-output

demo-secure: $(INSTALLED) ## eight clinics, one secure sum, nobody to trust: into demo-secure-output/
	@$(BIN)/noisewise demo --secure --output demo-secure-output

test: $(INSTALLED) ## all tests
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --dist worksteal $(ARGS)

check: $(INSTALLED) ## style, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(INSTALLED) ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## speed and memory, as ratios side by side with a peer in one run
	@$(BIN)/python -m benchmarks $(ARGS)

faults: $(INSTALLED) ## secure sums under faults: 1,000 rounds in the simulator, with a tally of what struck
	@$(ONE_THREAD) $(BIN)/python -m tests.simulator $(ARGS)

experiments: $(INSTALLED) ## calibration and accuracy at full size; takes hours, can be interrupted and resumed
	@$(ONE_THREAD) $(BIN)/python -m experiments.sbc methods
	@$(ONE_THREAD) $(BIN)/python -m experiments.sbc covariates
	@$(ONE_THREAD) $(BIN)/python -m experiments.sbc nonnormal
	@$(ONE_THREAD) $(BIN)/python -m experiments.sbc wide
	@$(ONE_THREAD) $(BIN)/python -m experiments.sbc exact
	@$(ONE_THREAD) $(BIN)/python -m experiments.sbc pages
	@$(ONE_THREAD) $(BIN)/python -m experiments.accuracy
	@$(ONE_THREAD) $(BIN)/python -m experiments.projection
	@$(BIN)/python -m experiments.demo_coverage

docs: $(INSTALLED) ## the documentation as a web site, into site/
	@$(BIN)/mkdocs build --strict --site-dir site
	@echo "Open site/index.html"

constraints: $(INSTALLED) ## pin in constraints.txt what .venv holds now
	@$(BIN)/python -m pip freeze --exclude-editable --disable-pip-version-check | grep -E '^[A-Za-z0-9._-]+==' > constraints.new
	@mv constraints.new constraints.txt
	@touch $(INSTALLED)

clean: ## remove what the targets made, but keep .venv
	rm -rf demo-output demo-secure-output site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf $(VENV)
