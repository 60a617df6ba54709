# Start with `make run` and `make check`. `make help` lists the everyday targets, `make help-all` all targets.
# The text after `##` is the target's line in `make help`; after `#+`, it is only in `make help-all`.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# make run: requests, slots, share of jobs that fail, whether urgent and heavy requests come in between (no, yes), and
# what runs in the slots (glue, workflow).
REQUESTS   ?= 40
LIMIT      ?= 3
FAIL       ?= 0
PRIORITIES ?= no
TARGET     ?= glue
DOORBELL   ?= yes
# The number of keys (0..20), of which the first one sends half of the requests.
KEYS       ?= 0
# Minutes of faults; 0: none. The requests are then drawn from SEED. make soak is the same with MINUTES.
FAULTS     ?= 0
# yes: open the console in the browser during the run, and keep it until Ctrl-C.
WATCH      ?= no
# With priorities, the default for LIMIT is 4.
run: LIMIT := $(if $(and $(filter yes,$(PRIORITIES)),$(filter file,$(origin LIMIT))),4,$(LIMIT))

# make run-chatbot: messages, concurrent senders, invalidations of the token, seconds of a POST /auth.
MESSAGES      ?= 200
SENDERS       ?= 50
INVALIDATIONS ?= 5
AUTH_LATENCY  ?= 0.5

# make run-worker: seed of the requests, factor for the downstream's 1 to 6 seconds (0.02..1), concurrent callers (2..10),
# whether the downstream fails in the middle (no, yes).
SCALE   ?= 0.15
WORKERS ?= 3
OUTAGE  ?= no
# Its default for REQUESTS (1..1000) is 100.
run-worker: REQUESTS := $(if $(filter file,$(origin REQUESTS)),100,$(REQUESTS))

# The seed of everything random: make run-worker, make soak, make simulate, make replay.
SEED ?= 1

# make simulate: random schedules after the exploration of the small worlds.
SCHEDULES ?= 1000000
# no: random schedules only.
EXPLORE ?= yes
# make replay: the world of the schedule.
WORLD ?= slots
simulate: SEED := $(if $(filter file,$(origin SEED)),0,$(SEED))
# make races: seconds of each race.
SECONDS_EACH ?= 60
# make guards: prefix of the guards' names. Empty: all.
ONLY ?=
# make soak: minutes of requests and faults.
MINUTES ?= 10

# The message to the chatbot. Its quotes and dollar signs reach the shell unchanged.
TEXT ?= Good morning
override TEXT := $(value TEXT)
export TEXT

# make work: the message, passed in the same manner. Empty: the shipped work's sample request.
BODY ?=
override BODY := $(value BODY)
export BODY

# make local-up: your Glue job's script, its default arguments, and parameters of the template. Empty: the sample job.
JOB        ?=
ARGUMENTS  ?=
PARAMETERS ?=
override JOB        := $(value JOB)
override ARGUMENTS  := $(value ARGUMENTS)
override PARAMETERS := $(value PARAMETERS)
export JOB ARGUMENTS PARAMETERS

# make invoke: a function, and an event (a name in events/, or a file). Without EVENT it lists the events.
FUNCTION ?=
EVENT    ?=
export FUNCTION EVENT

VENV   := build/venv
PYTHON := $(VENV)/bin/python
SETUP  := python3 dev/tools/bootstrap.py
# The set-up writes this file last, since an interrupted set-up has a Python without packages.
READY  := $(VENV)/.installed-local
# For two processors: tests with an engine mostly wait. Measured: 372 s with 5, 379 s with 4.
TEST_WORKERS ?= 5
# They take long, or need the package index. Without their names, pytest collects test_*.py only.
SLOW_TESTS := tests/deployed/scenario_runs.py tests/command/newest_versions.py tests/simulation/short_worlds.py
LINTED := layers functions cli dev jobs tests examples
# The environment comes first: sam build searches PATH for python3.13.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export SAM_CLI_TELEMETRY := 0

# make check: the tests of changes since this branch.
BASE ?= main
# pytest caches its rewritten bytecode also if the shell forbids it.
unexport PYTHONDONTWRITEBYTECODE

# Lists the targets with one of the marks, by group.
SHOW_TARGETS = awk -v marks='$(1)' 'BEGIN {FS = ":.*" marks " "} /^\#\#@ / {group = substr($$0, 5)} $$0 ~ "^[a-z-]+:.*" marks " " \
  {if (group) print "\n" group; group = ""; printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: help
help:
	@$(call SHOW_TARGETS,##)
	@echo; echo "  make help-all: every target, and the options of each"

.PHONY: help-all
help-all:  #+ Show every target, and the options of each
	@$(call SHOW_TARGETS,#[#+])
	@echo
	@echo "  make run REQUESTS=40 LIMIT=3 FAIL=0.2   requests (1..2000), slots (1..500), share of jobs that fail (0..1)"
	@echo "  make run PRIORITIES=yes   urgent and heavy requests come in between (REQUESTS from 12, LIMIT from 3, default 4)"
	@echo "  make run TARGET=workflow   a state machine in place of the Glue job, and a caller that waits for results"
	@echo "  make run DOORBELL=no   no message of DispatchQueue is delivered: the janitor alone starts what waits"
	@echo "  make run KEYS=3   so many keys with a limit each (1..20); the first one sends half of the requests"
	@echo "  make run FAULTS=10 SEED=1   minutes of faults (0.1..120), for which SEED draws the requests; LIMIT up to 20"
	@echo "  make run WATCH=yes   open the console in the browser, and see the slots fill; Ctrl-C ends it"
	@echo "  make run-chatbot MESSAGES=200 SENDERS=50 INVALIDATIONS=5 AUTH_LATENCY=0.5   up to 2000, 100, 50; 0..3 seconds"
	@echo "  make run-worker REQUESTS=100 SEED=1 SCALE=0.15 WORKERS=3 OUTAGE=no   up to 1000; 0.02..1; 2..10; no, yes"
	@echo "  make local-up JOB=my_job.py ARGUMENTS='--mode=fast' PARAMETERS='ProcessName=sales SlotLimit=3'   your Glue job"
	@echo "  make local-up DOCKER=yes   let containers reach it, for sam local invoke"
	@echo "  make simulate SCHEDULES=1000000 SEED=0 EXPLORE=yes   make races SECONDS_EACH=60   make guards ONLY=f24"
	@echo "  make bench SMALL=yes ONLY=keys   a small run only shows that it works; one part: designs, keys"
	@echo "  make soak MINUTES=10 SEED=1 LIMIT=3   minutes (0.1..120), seed of the faults, slots (1..20)"
	@echo "  make smoke STACK=slotkeeper PROFILE= REGION= ONLY=ring,redrive LIST=yes YES=yes   shows its cost and asks"
	@echo "  make work BODY='{\"request_id\": \"a\", \"payload\": {...}}'   your own message, unchanged"

.PHONY: setup
setup:
	@$(SETUP) requirements/local.txt

##@ Run it

.PHONY: run
run: setup  ## Deploy to an embedded AWS, send requests through the slots, report, stop
	@$(if $(filter yes,$(WATCH)),$(SETUP) requirements/web.txt)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.scenarios slots --requests="$(REQUESTS)" --limit="$(LIMIT)" --fail="$(FAIL)" \
	  --priorities="$(PRIORITIES)" --target="$(TARGET)" --doorbell="$(DOORBELL)" --keys="$(KEYS)" --watch="$(WATCH)" --faults="$(FAULTS)" --seed="$(SEED)"

.PHONY: run-chatbot
run-chatbot: setup  ## The same with the chatbot: many senders share a token, which is revoked repeatedly
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.scenarios token --messages="$(MESSAGES)" --senders="$(SENDERS)" \
	  --invalidations="$(INVALIDATIONS)" --auth-latency="$(AUTH_LATENCY)"

.PHONY: run-worker
run-worker: setup  ## Send slow, failing and poison requests to the worker's shipped work (REQUESTS=100 OUTAGE=no)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.scenarios worker --requests="$(REQUESTS)" --seed="$(SEED)" --scale="$(SCALE)" \
	  --workers="$(WORKERS)" --outage="$(OUTAGE)"

.PHONY: local-up
local-up: setup  ## Deploy to an embedded AWS and leave it running
	@$(PYTHON) -m dev.emulator up --job="$$JOB" --arguments="$$ARGUMENTS" --parameters="$$PARAMETERS" \
	  $(if $(filter yes,$(DOCKER)),--docker)

.PHONY: local-down
local-down:  ## Stop it
	@if [ -e $(READY) ]; then $(PYTHON) -m dev.emulator down; else echo "local: not running"; fi

.PHONY: say
say:  #+ Send TEXT to the chatbot of local-up and print its answer
	@[ -e $(READY) ] || { echo "local: not running, and not set up yet: run make local-up"; exit 1; }
	@$(PYTHON) -m dev.emulator say -- "$$TEXT"

.PHONY: work
work:  #+ Send the worker of local-up BODY, or the shipped work's sample request, and print its outcome
	@[ -e $(READY) ] || { echo "local: not running, and not set up yet: run make local-up"; exit 2; }
	@$(PYTHON) -m dev.emulator work -- "$$BODY"

.PHONY: invoke
invoke: setup-dev  #+ Call FUNCTION of local-up with EVENT; without EVENT, list the events
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.tools.invoke -- "$$FUNCTION" "$$EVENT"

##@ Develop

.PHONY: setup-dev
setup-dev:  ## Install what tests and linters need into build/venv, as the targets of this group do
	@$(SETUP) requirements/local.txt requirements/web.txt requirements/dev.txt

.PHONY: check
check: lint-code  ## Format, lint, types, and the fast tests of what differs from BASE (main)
	@$(PYTHON) -m dev.tools.check "$(BASE)"

.PHONY: format
format: setup-dev  ## Format the code and apply the fixes of the linter
	@ruff check --fix $(LINTED)
	@ruff format $(LINTED)

.PHONY: test
test: setup-dev  ## Run the tests
	@# In a fresh clone each worker would compile all modules. An error shows again in the run itself.
	@[ -d tests/unit/__pycache__ ] || { echo "test: compiling all modules"; $(PYTHON) -m pytest --collect-only --quiet > /dev/null; } || true
	@$(PYTHON) -m pytest --numprocesses $(TEST_WORKERS)

.PHONY: lint-code
lint-code: words
	@ruff check $(LINTED)
	@ruff format --check $(LINTED)
	@mypy --no-error-summary layers/slotkeeper/slotkeeper cli/slotkeeper_cli dev jobs/*.py $(wildcard functions/*/*.py \
	  functions/*/src/*.py) examples/leases/*.py
	@cd examples/shared-token && MYPYPATH=$(CURDIR)/layers/slotkeeper mypy --no-error-summary greeter tests

.PHONY: words
words: setup-dev  #+ List words that the project decided against (dev/words.toml), with what to write instead
	@$(PYTHON) -m dev.tools.words

.PHONY: jsonata
jsonata: setup-dev  #+ Compare the workflow's expressions with JSONata 2.0.6 itself, which Step Functions documents
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m tests.workflow.reference

.PHONY: lint-template
lint-template: setup-dev
	@cfn-lint template.yaml examples/*/template.yaml
	@AWS_DEFAULT_REGION=us-east-1 sam validate --lint

.PHONY: lint-security
lint-security: setup-dev
	@$(SETUP) --venv build/checkov requirements/checkov.txt
	@build/checkov/bin/checkov --quiet --compact --config-file .checkov.yaml

.PHONY: lint
lint: lint-code jsonata lint-template lint-security  ## Format, lint, types, words, the workflow's expressions, the template and its security

.PHONY: hooks
hooks: setup-dev  #+ Let git run make check before each commit (.pre-commit-config.yaml)
	@$(SETUP) --venv build/hooks requirements/hooks.txt
	@build/hooks/bin/pre-commit install

.PHONY: lock
lock: setup  #+ Compile requirements/*.in (needs the package index)
	@$(PYTHON) -m pip install --quiet uv
	@for name in local web dev checkov hooks; do \
	  $(VENV)/bin/uv pip compile --quiet --upgrade --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
	    --python-version 3.13 requirements/$$name.in -o requirements/$$name.txt; \
	done

.PHONY: clean
clean:  #+ Remove everything that was generated
	@$(MAKE) --no-print-directory local-down || echo "local: could not be stopped; its files are removed nevertheless"
	@rm -rf build slotkeeper.egg-info .aws-sam .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Prove it

.PHONY: simulate
simulate: setup-dev  ## Explore small worlds of the real code, then a million random schedules
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m tests.simulation run --schedules="$(SCHEDULES)" --seed="$(SEED)" \
	  $(if $(filter no,$(EXPLORE)),--no-explore)

.PHONY: races
races: setup-dev  #+ Race for leases with 8 processes of 16 threads on DynamoDB Local
	@$(PYTHON) -m pytest tests/deployed/races/test_lease_races.py --seconds="$(SECONDS_EACH)"

.PHONY: guards
guards: setup-dev  ## Remove each guard and each term of an expression, and check that something notices (build/guards/report.md)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m tests.guards $(if $(ONLY),--only "$(ONLY)")

.PHONY: own-work
own-work: setup-dev  #+ Replace the worker's shipped work in a copy, and run the linters and tests that concern it
	@$(PYTHON) -m tests.deployed.own_work

.PHONY: test-slow
test-slow: setup-dev  #+ Run the tests that make test leaves to CI: runs of scenarios, newest versions, small worlds of seconds
	@$(PYTHON) -m pytest --numprocesses 2 $(SLOW_TESTS)

.PHONY: soak
soak: setup  ## Keep the deployed stack busy under faults and restarts (build/soak/)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.scenarios slots --faults="$(MINUTES)" --seed="$(SEED)" --limit="$(LIMIT)"

.PHONY: replay
replay: setup-dev  #+ Print one random schedule: make replay WORLD=slots SEED=17
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m tests.simulation replay "$(WORLD)" "$(SEED)"

.PHONY: fuzz
fuzz: setup-dev  #+ Call the handlers with many more random inputs
	@$(PYTHON) -m pytest tests/unit/fuzz --hypothesis-profile=long

.PHONY: bench
bench: setup  #+ Compare with AWS's sample, a lock client and a counter; cost of keys (build/bench/)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m dev.benchmarks $(if $(SMALL),--small) $(if $(ONLY),--only=$(ONLY))

##@ Deploy

.PHONY: smoke
smoke: setup  ## Check a deployed stack in AWS, for some cents (STACK=name; without: local-up)
	@PYTHONPATH=layers/slotkeeper $(PYTHON) -m tests.facts $(if $(STACK),--stack="$(STACK)",--local) \
	  $(if $(PROFILE),--profile="$(PROFILE)") $(if $(REGION),--region="$(REGION)") $(if $(ONLY),--only="$(ONLY)") \
	  $(if $(LIST),--list) $(if $(YES),--yes)

.PHONY: cli
cli: setup  ## Install the operator command `slotkeeper` into build/cli
	@[ -x build/cli/bin/pip ] || $(PYTHON) -m venv build/cli
	@build/cli/bin/pip install --quiet --disable-pip-version-check --constraint requirements/local.txt \
	  --constraint requirements/web.txt '.[cli,web]'
	@echo "slotkeeper: build/cli/bin/slotkeeper --help; where you use it daily: pipx install '.[cli]'"

.PHONY: gradual
gradual: setup  #+ Write the template of a gradual deployment (build/gradual/), for sam build --config-env prod
	@$(PYTHON) -m dev.tools.gradual $(if $(TYPE),--type "$(TYPE)")
