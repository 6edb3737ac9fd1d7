# Every target builds the virtual environment it needs; only Python 3.11+ and make must be there.

VENV ?= .venv
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 20 -m 'not long and not slow'
BENCH_ARGS ?=
JOBS ?= 2
QUICK ?=
TABLE1_ARGS ?=
SBC_ARGS ?=
CONSTRAINTS ?=
NOTEBOOKS ?=
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
LOWEST_PYTHON ?= python3.11
# What a version of a dependency may do otherwise.
LOWEST_TESTS ?= tests/test_arviz.py tests/test_checkpoint.py tests/test_classifier.py tests/test_cli.py \
    tests/test_kernels.py tests/test_larger_model.py tests/test_loo.py \
    tests/test_machines_solution.py tests/test_numpyro_citizen.py tests/test_persistence_roundtrip.py \
    tests/test_plots.py tests/test_report.py tests/test_scaling.py tests/test_warnings.py

# python3 if it is new enough, else the first versioned interpreter that starts.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
    $$p $(NEW_ENOUGH) >/dev/null 2>&1 && echo $$p && break; done)
PYTHON := $(or $(PYTHON),python3)
endif

BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-all test-lowest lint review dist bench notebooks notebooks-build table1 sbc mutants fuzz coverage load audit docs docs-pages doctest clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /:/' | \
		while IFS=: read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.report-stamp ## fit, predict and diagnose on a small data set
	$(BIN)/python -m bmsvm demo

test: $(VENV)/.test-stamp ## run the tests (PYTEST_ARGS=... to choose)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-long: ## run the tests that repeat proofs in more settings
	$(MAKE) --no-print-directory test PYTEST_ARGS="-n auto --maxprocesses 4 -m 'long or slow'"
	BMSVM_FUZZ=2000 $(BIN)/python -m pytest -q tests/test_fuzz_*.py -m 'not long and not slow'

test-all: ## run the tests under every Python 3.11 to 3.14 on PATH
	@status=0; \
	for p in $(PYTHONS); do \
		if ! $$p -c '' >/dev/null 2>&1; then echo "== $$p: not found or does not start, skipped"; continue; fi; \
		echo "== $$p"; \
		$(MAKE) --no-print-directory test PYTHON=$$p VENV=$(VENV)-$$(basename $$p) || status=1; \
	done; exit $$status

test-lowest: $(VENV)-lowest/.lowest-stamp ## run tests with the lowest supported versions (LOWEST_TESTS=...)
	$(VENV)-lowest/bin/python -m pytest -q -m 'not long and not slow' $(LOWEST_TESTS)

lint: $(VENV)/.lint-stamp ## ruff, mypy and codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

review: $(VENV)-review/.review-stamp ## check the repository by the guide of Scientific Python
	$(VENV)-review/bin/repo-review .

dist: $(VENV)-dist/.dist-stamp ## build wheel and sdist into dist, check them, fit with each in an empty environment
	rm -rf dist
	$(VENV)-dist/bin/python -m build -q
	$(VENV)-dist/bin/python -m twine check --strict dist/*
	$(VENV)-dist/bin/python tools/try_distribution.py $(if $(CONSTRAINTS),--constraints $(CONSTRAINTS)) dist/*

bench: $(VENV)/.bench-stamp ## the samplers against each other (BENCH_ARGS="--quick": under a minute)
	$(BIN)/python benchmarks/samplers.py $(BENCH_ARGS)

table1: $(VENV)/.plots-stamp ## Table 1 of the paper, into table1-output (QUICK=1, JOBS=2, TABLE1_ARGS=...)
	$(BIN)/python -m reproduction.table1 --jobs $(JOBS) $(if $(QUICK),--quick) $(TABLE1_ARGS)

sbc: $(VENV)/.plots-stamp ## simulation-based calibration, into sbc-output (QUICK=1, JOBS=2, SBC_ARGS=...)
	$(BIN)/python -m reproduction.sbc --jobs $(JOBS) $(if $(QUICK),--quick) $(SBC_ARGS)

mutants: $(VENV)/.test-stamp ## put errors into the sampler and see that tests notice each
	$(BIN)/python tests/mutants/run.py

fuzz: $(VENV)/.test-stamp ## 100,000 cases of odd input, 10,000 damaged files (hours)
	BMSVM_FUZZ=100000 BMSVM_MUTATIONS=10000 $(BIN)/python -m pytest tests/test_fuzz_*.py tests/test_persistence_mutation.py \
		-m 'not slow'

coverage: $(VENV)/.test-stamp ## lines of the package that the tests run, and those they do not
	$(BIN)/python -m pytest $(PYTEST_ARGS) --cov=bmsvm --cov-report=term-missing:skip-covered --cov-fail-under=95

load: $(VENV)/.test-stamp ## threads that predict for a minute, and 200 fits in a row
	$(BIN)/python benchmarks/load.py

audit: $(VENV)/.test-stamp ## licences of what is used, and known vulnerabilities where the index answers
	$(BIN)/python tools/dependencies.py check
	$(BIN)/python tools/audit.py

notebooks: $(VENV)/.notebooks-stamp ## run the notebooks on little data (NOTEBOOKS="01 04" to choose)
	$(BIN)/python notebooks/execute.py $(NOTEBOOKS)

notebooks-build: $(VENV)/.notebooks-stamp ## run the notebooks in full and write their .ipynb (NOTEBOOKS=...)
	$(BIN)/python notebooks/execute.py --build $(NOTEBOOKS)

docs: ## build the documentation into docs/_build/html, warnings being errors
	$(MAKE) --no-print-directory docs-pages VENV=$(VENV)-docs

docs-pages: $(VENV)/.docs-stamp
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

doctest: $(VENV)/.test-stamp ## run the examples of the docstrings and of the pages
	$(BIN)/python -m pytest -q -p no:cacheprovider --doctest-modules bmsvm
	MPLBACKEND=agg $(BIN)/python -m pytest -q -p no:cacheprovider --doctest-glob='*.md' docs/tutorial.md docs/sampler.md \
		docs/coming_from_svc.md docs/with_sklearn.md
	# The chains of this page are too short, as it says.
	$(BIN)/python -m pytest -q -p no:cacheprovider --doctest-glob='*.md' -W 'ignore:the chains have not converged' \
		docs/paper.md

clean: ## remove environments, caches and build output
	rm -rf .venv .venv-* build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bmsvm tests benchmarks notebooks docs reproduction tools -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp is touched last, so a set-up that was cut short is done again.
$(VENV)/.created:
	@$(PYTHON) $(NEW_ENOUGH) 2>/dev/null || { \
		echo "bmsvm needs Python 3.11 or newer; '$(PYTHON)' is not: try make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)-lowest/.lowest-stamp: pyproject.toml
	$(LOWEST_PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install -q --disable-pip-version-check uv
	$(VENV)-lowest/bin/uv pip install -q --python $(VENV)-lowest/bin/python --resolution lowest-direct -e '.[test]'
	@touch $@

$(VENV)-review/.review-stamp: TOOLS := 'sp-repo-review[cli]'
$(VENV)-dist/.dist-stamp: TOOLS := 'build>=1.2.2' 'twine>=6.1'
$(VENV)-review/.review-stamp $(VENV)-dist/.dist-stamp:
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check $(TOOLS)
	@touch $@

$(VENV)/.%-stamp: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install -q --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) -e '.[$*]'
	@touch $@
