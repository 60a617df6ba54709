# `make run` and `make check` first. `make help` lists the everyday targets, `make help-all` every one.
# A target's `##` is its line in `make help`; with `#+` it is in `make help-all` alone.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# What `make run` sends, into how many slots, and the share of jobs that fail.
REQUESTS ?= 40
LIMIT    ?= 3
FAIL     ?= 0

# What `make run-chatbot` sends, from how many senders, how often it kills the token, and the seconds of a POST /auth.
MESSAGES      ?= 200
SENDERS       ?= 50
INVALIDATIONS ?= 5
AUTH_LATENCY  ?= 0.5

# What `make run-worker` draws its mix from, the factor on the downstream's 1 to 6 seconds, and how many call it at once.
SEED    ?= 1
SCALE   ?= 0.15
WORKERS ?= 3
# It sends 100 requests, unless somebody says otherwise.
run-worker: REQUESTS := $(if $(filter file,$(origin REQUESTS)),100,$(REQUESTS))

# How many random schedules `make simulate` makes, after it has explored the small worlds.
SCHEDULES ?= 1000000
# no: only the random ones.
EXPLORE ?= yes
# Which world's schedule `make replay` tells.
WORLD ?= slots
simulate: SEED := $(if $(filter file,$(origin SEED)),0,$(SEED))
# Seconds of each race of `make races`.
SECONDS_EACH ?= 60
# The known bugs of `make mutants`, those whose names begin so; the parts of `make bench`. All, if left out.
ONLY ?=
# How long `make soak` keeps the stack busy.
MINUTES ?= 10

# What `make say` says. It reaches the shell as it is, whatever quotes and dollars it holds.
TEXT ?= Good morning
override TEXT := $(value TEXT)
export TEXT

# What `make work` sends, in the same way. Nothing: a sample request.
BODY ?=
override BODY := $(value BODY)
export BODY

# What `make invoke` calls, and with what: a name in events/, or a file. With neither, or no EVENT, it lists them.
FUNCTION ?=
EVENT    ?=
export FUNCTION EVENT

VENV   := build/venv
PYTHON := $(VENV)/bin/python
SETUP  := python3 dev/tools/bootstrap.py
# The set-up writes it last: an interrupted one has a Python, but not the packages.
READY  := $(VENV)/.installed-local
# The Lambda runtime's client: there is none for other systems, and no emulator that it could talk to.
RUNTIME := $(if $(filter Linux,$(shell uname -s)),requirements/runtime.txt)
# One more than processors: tests that have an engine wait most of their time (tests/conftest.py has them take turns).
TEST_WORKERS ?= 3
LINTED := layers functions cli dev jobs tests
# The environment's own folder comes first: sam build looks for python3.13 on PATH.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export SAM_CLI_TELEMETRY := 0

# What `make check` compares with: the commit at which the branch left it.
BASE ?= main
# Test modules keep the bytecode that pytest has rewritten, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

# The targets that carry one of the marks, under the headings of their groups.
LIST = awk -v marks='$(1)' 'BEGIN {FS = ":.*" marks " "} /^\#\#@ / {group = substr($$0, 5)} $$0 ~ "^[a-z-]+:.*" marks " " \
  {if (group) print "\n" group; group = ""; printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: help
help:
	@$(call LIST,##)
	@echo; echo "  make help-all: every target, and the options of each"

.PHONY: help-all
help-all:  #+ Show every target, and the options of each
	@$(call LIST,#[#+])
	@echo
	@echo "  make run REQUESTS=40 LIMIT=3 FAIL=0.2   requests (1..2000), slots (1..500), share of jobs that fail (0..1)"
	@echo "  make run-chatbot MESSAGES=200 SENDERS=50 INVALIDATIONS=5 AUTH_LATENCY=0.5   up to 2000, 100, 50; 0..3 seconds"
	@echo "  make run-worker REQUESTS=100 SEED=1 SCALE=0.15 WORKERS=3   1..1000; a seed; factor on 1 to 6 s; callers (2..10)"
	@echo "  make simulate SCHEDULES=1000000 SEED=0 EXPLORE=yes   make races SECONDS_EACH=60   make mutants ONLY=f05"
	@echo "  make bench ONLY=slot-cycle,token SMALL=yes LIST=yes   a small run only shows that it works"
	@echo "  make soak MINUTES=10 SEED=1 LIMIT=3   minutes (0.1..120), a seed of the faults, slots (1..20)"
	@echo "  make smoke STACK=slotkeeper PROFILE= REGION= ONLY=wake,redrive LIST=yes YES=yes   shows its cost and asks"
	@echo "  make work BODY='{\"request_id\": \"a\", \"payload\": {...}}'   a message of your own, as it is"

.PHONY: setup
setup:
	@$(SETUP) requirements/local.txt

.PHONY: setup-dev
setup-dev:
	@$(SETUP) requirements/local.txt requirements/dev.txt $(RUNTIME)

##@ Run it

.PHONY: run
run: setup  ## Deploy to an embedded AWS, pass requests through the slots, report, stop
	@$(PYTHON) -m dev.scenarios.slots --requests="$(REQUESTS)" --limit="$(LIMIT)" --fail="$(FAIL)"

.PHONY: run-chatbot
run-chatbot: setup  ## The same with the chatbot: many senders share one token, which is revoked on the way
	@$(PYTHON) -m dev.scenarios.token --messages="$(MESSAGES)" --senders="$(SENDERS)" \
	  --invalidations="$(INVALIDATIONS)" --auth-latency="$(AUTH_LATENCY)"

.PHONY: run-worker
run-worker: setup  ## The same with the worker: slow, failing and poison requests
	@$(PYTHON) -m dev.scenarios.worker --requests="$(REQUESTS)" --seed="$(SEED)" --scale="$(SCALE)" --workers="$(WORKERS)"

.PHONY: local-up
local-up: setup  ## Deploy to an embedded AWS and leave it running (build/local/outputs.json)
	@$(PYTHON) -m dev.emulator up

.PHONY: local-down
local-down:  ## Stop it
	@if [ -e $(READY) ]; then $(PYTHON) -m dev.emulator down; else echo "local: not running"; fi

.PHONY: say
say:  #+ Send TEXT to the chatbot of local-up and print its answer
	@[ -e $(READY) ] || { echo "local: not running, and not set up yet: run make local-up"; exit 1; }
	@$(PYTHON) -m dev.emulator say -- "$$TEXT"

.PHONY: work
work:  #+ Send the worker of local-up a sample request, or BODY, and print what became of it
	@[ -e $(READY) ] || { echo "local: not running, and not set up yet: run make local-up"; exit 2; }
	@$(PYTHON) -m dev.emulator work -- "$$BODY"

.PHONY: invoke
invoke: setup-dev  #+ Call FUNCTION with EVENT in the Lambda runtime; without EVENT, list the events
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m dev.tools.invoke -- "$$FUNCTION" "$$EVENT"

##@ Develop

.PHONY: check
check: lint-code  ## Format, lint, types, and the fast tests of what differs from BASE (main)
	@$(PYTHON) -m dev.tools.check "$(BASE)"

.PHONY: format
format: setup-dev  ## Format the code and apply the fixes of the linter
	@ruff check --fix $(LINTED)
	@ruff format $(LINTED)

.PHONY: test
test: setup-dev  ## Run every test
	@$(PYTHON) -m pytest --numprocesses $(TEST_WORKERS)

.PHONY: lint-code
lint-code: setup-dev
	@ruff check $(LINTED)
	@ruff format --check $(LINTED)
	@mypy --no-error-summary layers/slotkeeper/slotkeeper cli/slotkeeper_cli dev
	@for folder in functions/*/ jobs/; do mypy --no-error-summary $$folder*.py || exit 1; done

.PHONY: words
words: setup-dev  #+ List words that the project decided against (dev/words.toml), with what to write instead
	@$(PYTHON) -m dev.tools.words

.PHONY: lint
lint: lint-code  ## Format, lint, types, the template and its security
	@cfn-lint template.yaml
	@AWS_DEFAULT_REGION=us-east-1 sam validate --lint
	@$(SETUP) --venv build/checkov requirements/checkov.txt
	@$(PYTHON) -m dev.tools.merged build/merged/template.json
	@build/checkov/bin/checkov --quiet --compact --config-file .checkov.yaml

.PHONY: hooks
hooks: setup-dev  #+ Let git run make check before each commit (.pre-commit-config.yaml)
	@$(SETUP) --venv build/hooks requirements/hooks.txt
	@build/hooks/bin/pre-commit install

.PHONY: lock
lock: setup  #+ Compile requirements/*.in (needs the package index)
	@$(PYTHON) -m pip install --quiet uv
	@for name in local dev runtime checkov hooks; do \
	  $(VENV)/bin/uv pip compile --quiet --upgrade --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
	    --python-version 3.13 requirements/$$name.in -o requirements/$$name.txt; \
	done

.PHONY: clean
clean:  #+ Remove everything that was generated
	@$(MAKE) --no-print-directory local-down || echo "local: could not be asked to end; removing its files all the same"
	@rm -rf build slotkeeper.egg-info .aws-sam .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Prove it

.PHONY: simulate
simulate: setup-dev  ## Explore small worlds of the real code, then a million random schedules
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m tests.simulation run --schedules="$(SCHEDULES)" --seed="$(SEED)" \
	  $(if $(filter no,$(EXPLORE)),--no-explore)

.PHONY: races
races: setup-dev  ## Race for slots with 8 processes of 16 threads on DynamoDB Local (build/races/)
	@$(PYTHON) -m pytest tests/races/test_slot_races.py --seconds="$(SECONDS_EACH)"

.PHONY: mutants
mutants: setup-dev  ## Put each known bug back, in a copy, and see which test catches it (build/mutants/report.md)
	@$(PYTHON) -m tests.mutants $(if $(ONLY),--only "$(ONLY)")

.PHONY: soak
soak: setup  ## Keep the deployed stack busy under faults and restarts (build/soak/)
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m dev.scenarios.soak --minutes="$(MINUTES)" --seed="$(SEED)" --limit="$(LIMIT)"

.PHONY: replay
replay: setup-dev  #+ Print one random schedule: make replay WORLD=slots SEED=17
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m tests.simulation replay "$(WORLD)" "$(SEED)"

.PHONY: fuzz
fuzz: setup-dev  #+ Call the handlers with many more random inputs
	@$(PYTHON) -m pytest tests/fuzz --hypothesis-profile=long

.PHONY: bench
bench: setup-dev  #+ Measure against the alternatives, in 12 minutes (build/bench/)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.benchmarks $(if $(ONLY),--only "$(ONLY)") \
	  $(if $(SMALL),--small) $(if $(LIST),--list)

##@ Deploy

.PHONY: smoke
smoke: setup  ## Check a stack against its own AWS, for some cents (STACK=name; without: local-up)
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m dev.smoke $(if $(STACK),--stack="$(STACK)",--local) \
	  $(if $(PROFILE),--profile="$(PROFILE)") $(if $(REGION),--region="$(REGION)") $(if $(ONLY),--only="$(ONLY)") \
	  $(if $(LIST),--list) $(if $(YES),--yes)

.PHONY: cli
cli: setup  ## Install the operator command `slotkeeper` into build/cli
	@[ -x build/cli/bin/pip ] || $(PYTHON) -m venv build/cli
	@build/cli/bin/pip install --quiet --disable-pip-version-check --constraint requirements/local.txt .
	@echo "slotkeeper: build/cli/bin/slotkeeper --help; where you use it daily: pipx install ."

.PHONY: gradual
gradual: setup  #+ Write the template of a gradual deployment (build/gradual/), for sam build --config-env prod
	@$(PYTHON) -m dev.tools.gradual $(if $(TYPE),--type "$(TYPE)")
