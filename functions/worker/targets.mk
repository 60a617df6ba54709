##@ Run the worker's shipped work

# make run-worker: requests (1..1000), seed of the requests, factor for the downstream's 1 to 6 seconds (0.02..1), concurrent
# callers (2..10), whether the downstream fails in the middle (no, yes).
SCALE   ?= 0.15
WORKERS ?= 3
OUTAGE  ?= no
# Its default for REQUESTS is 100.
run-worker: REQUESTS := $(if $(filter file,$(origin REQUESTS)),100,$(REQUESTS))

.PHONY: run-worker
run-worker: setup  ## Send slow, failing and poison requests to the worker, report, stop (REQUESTS=100 SEED=1 SCALE=0.15 WORKERS=3 OUTAGE=no)
	@PYTHONPATH=layers/slotkeeper:cli $(PYTHON) -m functions.worker.scenario --requests="$(REQUESTS)" --seed="$(SEED)" --scale="$(SCALE)" --workers="$(WORKERS)" --outage="$(OUTAGE)"
