"""An engine that is started with a folder to keep its state in can be ended and started again.

AWS: what a service has acknowledged is durable ("Amazon SQS Developer Guide: Data protection": messages are stored on
several servers; "Amazon DynamoDB Developer Guide: What is Amazon DynamoDB"), whatever becomes of the machines it runs
on; a Glue run does not end with whoever started it.
MiniStack saves its services one after the other while executions and functions still change them, which gives a table
of one moment and a queue of another, and only when it is asked to end. A Glue run that is alive then stays RUNNING for
ever.

Here everything is saved as of one instant, at which the world stands still: by SIGTERM when the requests that are open
have been answered, by SIGUSR1 at once, in the middle of whatever is under way. What ran is gone: containers, scripts,
the answers that were on their way. Executions that ran are FAILED with States.ServiceRestart afterwards, without a
status event (MiniStack's own rule; an execution's thread cannot be saved). Glue runs that were alive go on: their
scripts begin anew.
"""

import os
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from dev.emulator import processes
from dev.emulator.engine import drives
from dev.emulator.engine.emulator import glue, persistence, replace, sqs
from dev.emulator.engine.patches import dynamodb_writes, glue_runs, sqs_locks

# In this order: whoever closes an execution sends its status event while it holds the first.
LOCKS = (drives.lock, dynamodb_writes.lock, sqs_locks.lock, glue_runs.lock)
PATIENCE = 0.2  # seconds for one lock
ATTEMPTS = 50


def apply() -> None:
    """Save as of one instant, on both ways to end; make what was restored go on."""
    replace(persistence, "save_all", lambda _original: _save_and_end)
    replace(glue, "_restore_state", _restore_glue)
    replace(sqs, "_restore_state", _restore_sqs)
    # A handler runs between two steps of the event loop's thread, which may hold a lock half-way through a change.
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=_end_at_once, daemon=True).start())


def _end_at_once() -> None:
    _save_and_end(import_module("ministack.app")._build_persistence_save_dict())


def _save_and_end(services: Mapping[str, Callable[[], Any]]) -> None:
    stand_still()
    for name, get_state in services.items():
        persistence.save_state(name, _consistent(get_state))
    sys.stderr.flush()
    leader = os.getpid()
    for pid in processes.session_members(leader):
        processes.send_signal(pid, signal.SIGKILL)
    os._exit(0)


def stand_still() -> None:
    """Take every lock, for good: from here on nothing changes a table, a queue, an execution or a run."""
    while True:
        held = []
        for lock in LOCKS:
            if not lock.acquire(timeout=PATIENCE):
                break
            held.append(lock)
        if len(held) == len(LOCKS):
            return
        for lock in held:  # somebody took two of them in another order
            lock.release()
        time.sleep(PATIENCE / 10)


def _consistent(get_state: Callable[[], Any]) -> Any:
    """What no lock covers (a request that makes something new) may change a dictionary while it is copied."""
    for _ in range(ATTEMPTS):
        try:
            return get_state()
        except RuntimeError as error:
            if "changed size" not in str(error):
                raise
    return get_state()


def _restore_glue(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def restore(data: Any) -> None:
        original(data)
        for name, runs in list(glue._job_runs.items()):
            for run in runs:
                if run["JobRunState"] in glue_runs.LIVE:
                    glue_runs.go_on(name, run)

    return restore


def _restore_sqs(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def restore(data: Any) -> None:
        original(data)
        for queue in sqs._queues.all_values():
            if "handles" in queue:
                queue["handles"] = OrderedDict(queue["handles"])

    return restore
