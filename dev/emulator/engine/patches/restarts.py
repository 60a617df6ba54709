"""An engine with a state folder can be ended and started again."""

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
from dev.emulator.engine.emulator import glue, patch, persistence, put, sqs, wrap
from dev.emulator.engine.patches import dynamodb as dynamodb_patches
from dev.emulator.engine.patches import glue as glue_patches
from dev.emulator.engine.patches import sqs as sqs_patches

# In this order: `drives.close` sends the status event while it holds the first.
LOCKS = (drives.lock, dynamodb_patches.lock, sqs_patches.lock, glue_patches.lock)
LOCK_SECONDS = 0.2
ATTEMPTS = 50


@patch
def restarts() -> None:
    """Acknowledged data survive a restart, and Glue runs continue.

    AWS: acknowledged data are durable ("Amazon SQS Developer Guide: Data protection": messages are stored on several
    servers; "Amazon DynamoDB Developer Guide: What is Amazon DynamoDB"), and a Glue run does not end with its caller.
    MiniStack saves its services only after SIGTERM, one after the other, while executions and functions still change
    them: the table can be older than the queue. A live Glue run stays RUNNING.

    Here all services are saved in their state of one instant, at which every change is blocked:

    - SIGTERM: after open requests have been answered. SIGUSR1: immediately, in the middle of requests.
    - Containers, scripts and unsent answers are lost.
    - Running executions are FAILED with States.ServiceRestart after the start, without a status event (MiniStack's
      rule; an execution's thread cannot be saved).
    - Live Glue runs continue: their scripts start again.
    """
    put(persistence, "save_all", _save_and_end)
    wrap(glue, "_restore_state", _restore_glue)
    wrap(sqs, "_restore_state", _restore_sqs)
    # On a separate thread: the handler interrupts the event loop's thread, which may hold a lock during a change.
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=_end_immediately, daemon=True).start())


def _end_immediately() -> None:
    _save_and_end(import_module("ministack.app")._build_persistence_save_dict())


def _save_and_end(services: Mapping[str, Callable[[], Any]]) -> None:
    _block_changes()
    for name, get_state in services.items():
        persistence.save_state(name, _consistent(get_state))
    sys.stderr.flush()
    leader = os.getpid()
    for pid in processes.session_members(leader):
        processes.send_signal(pid, signal.SIGKILL)
    os._exit(0)


def _block_changes() -> None:
    """Take every lock and keep it: tables, queues, executions and runs do not change afterwards."""
    while True:
        held = []
        for lock in LOCKS:
            if not lock.acquire(timeout=LOCK_SECONDS):
                break
            held.append(lock)
        if len(held) == len(LOCKS):
            return
        for lock in held:  # another thread takes two of them in another order
            lock.release()
        time.sleep(LOCK_SECONDS / 10)


def _consistent(get_state: Callable[[], Any]) -> Any:
    """The state; retried if a request without a lock, such as a creation, changes a dictionary during the copy."""
    for _ in range(ATTEMPTS):
        try:
            return get_state()
        except RuntimeError as error:
            if "changed size" not in str(error):
                raise
    return get_state()


def _restore_glue(original: Callable[[Any], None], data: Any) -> None:
    original(data)
    for name, runs in list(glue._job_runs.items()):
        for run in runs:
            if run["JobRunState"] in glue_patches.LIVE:
                glue_patches.resume(name, run)


def _restore_sqs(original: Callable[[Any], None], data: Any) -> None:
    original(data)
    for queue in sqs._queues.all_values():
        if "handles" in queue:
            queue["handles"] = OrderedDict(queue["handles"])
