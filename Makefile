# `make` prints the targets below. A target that is not listed is private.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
RUN    := $(VENV)/.installed-run
STAMP  := $(VENV)/.installed
SITE   := $(VENV)/.installed-docs
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat
UV     := $(shell command -v uv 2>/dev/null)
# LOCKED=1, as in CI, installs the files that .ci/requirements.txt lists, whose digests pip checks. Some are
# source distributions, so their build tools are installed first, from a separate list.
ifdef LOCKED
install = $(PIP) --require-hashes --requirement .ci/requirements-build.txt && \
  $(PIP) --require-hashes --no-build-isolation --use-pep517 --requirement .ci/requirements.txt && \
  $(PIP) --no-deps --no-build-isolation --editable .
else
install = $(if $(UV),$(UV) pip install --quiet --python $(PY) --config-setting editable_mode=compat,$(PIP)) --editable '.$(1)'
endif

# If this is set, every process in a test compiles all modules that it imports, and every pytest worker rewrites all assertions.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test fuzz mutants check lint types schemas docs generate screens lock bench packages house

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN) ## run a demo: a real nats-server, three agents, and a manifest for role=web (KEEP=1 leaves it running, SECURE=1 has credentials)
	@$(PY) -m ccm_ctl demo $(if $(KEEP),--keep) $(if $(SECURE),--secure)

test: $(STAMP) ## run every test this machine supports (TIER="unit e2e" selects tiers)
	@$(PY) .ci/test.py $(TIER)

fuzz: $(STAMP) ## fuzz all parsers until interrupted (SECONDS=60 limits the time, SEED=1 repeats a run, ONLY=cron selects one, ENGINE=atheris uses coverage)
	@$(PY) -m tests.fuzz

mutants: $(STAMP) ## remove each security check in turn and verify that a unit or broker test fails (ONLY=bus/signatures/trust.py, SAMPLE=20, BROKER=no)
	@$(PY) -m tests.mutants $(if $(ONLY),--only '$(ONLY)') $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(filter no,$(BROKER)),--no-broker)

check: $(STAMP) lint types schemas docs ## lint, types, schema drift, documentation
	@echo "all checks passed"

screens: $(STAMP) ## write every help screen and the common errors to .cache/screens.txt, for review
	@mkdir -p .cache && $(PY) .ci/screens.py > .cache/screens.txt && echo "written: .cache/screens.txt"

generate: $(STAMP) ## write schemas/v1 and the generated parts of the documentation
	@$(PY) .ci/generate.py

lock: $(STAMP) ## pin the packages that CI installs, with digests (needs uv; UPGRADE=1 selects newer versions)
	@$(PY) .ci/lock.py $(if $(UPGRADE),--upgrade)

bench: $(STAMP) ## run the benchmarks, each with its baseline (ONLY=simulate selects one, NODES=20000 sets its size, WITHIN=90 its seconds, BUDGETS=no)
	@$(PY) -m bench $(ONLY) $(NODES:%=--nodes %) $(WITHIN:%=--within %) $(if $(filter no,$(BUDGETS)),--no-budgets)

house: $(STAMP) ## print the size of the code, and how its modules depend on each other (LIST=1 lists the places)
	@$(PY) .ci/house.py $(if $(LIST),--list)

packages: $(STAMP) ## build a release in dist/: wheel, .deb and .rpm for the Python in .venv, dependencies and SBOM included (MACHINES="x86_64 aarch64")
	@$(PY) deploy/packages/build.py $(MACHINES:%=--machine %)

lint: $(STAMP)
	@echo "lint: ruff"
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check .

types: $(STAMP)
	@echo "types: mypy"
	@$(VENV)/bin/mypy --no-error-summary

schemas: $(STAMP)
	@echo "schemas: committed schemas match the code"
	@$(PY) .ci/generate.py --check

docs: $(SITE) ## build the documentation site into site/
	@echo "docs: pages, links, anchors, examples"
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Runtime dependencies: enough for the demo.
$(RUN): pyproject.toml .ci/fetch-nats-server
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is required; choose one with: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "installing into $(VENV)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
	  { echo "python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null
	@$(call install)
	@$(PY) .ci/fetch-nats-server
	@touch $@

# Development and test dependencies.
$(STAMP): $(RUN)
	@echo "installing the development tools (a minute the first time)"
	@$(call install,[dev])
	@touch $@

$(SITE): $(STAMP)
	@echo "installing the documentation tools"
	@$(call install,[docs])
	@touch $@
