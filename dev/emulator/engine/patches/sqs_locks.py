"""Every SQS operation on a queue is atomic.

AWS: "Amazon SQS Developer Guide: FIFO queue delivery logic": an accepted message stays until it is deleted or expires,
and is delivered to one consumer at a time.
MiniStack changes a queue from three threads (event loop, Lambda poller, Step Functions tasks): a client and a function
can receive the same message, and a message is lost if it is sent while another thread replaces the queue's list.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import replace, sqs

# ReceiveMessage waits on the event loop, so each of its steps takes the lock, and the wait does not.
OPERATIONS = (
    "_act_send_message",
    "_act_send_message_batch",
    "_act_delete_message",
    "_act_delete_message_batch",
    "_act_change_visibility",
    "_act_change_visibility_batch",
    "_act_get_queue_attributes",
    "_act_purge_queue",
)
STEPS = ("_collect_msgs", "_dlq_sweep", "_expire_retained", "_receive_messages_for_esm", "_delete_messages_for_esm")

lock = threading.RLock()


def apply() -> None:
    """Run every operation under one lock, also in MiniStack's table of actions."""
    replace(sqs, "_queues_lock", lambda _original: lock)  # reentrant: the steps are called inside it
    for name in OPERATIONS + STEPS:
        original = getattr(sqs, name)
        replace(sqs, name, locked)
        for action, handler in list(sqs._HANDLERS.items()):
            if handler is original:
                sqs._HANDLERS[action] = getattr(sqs, name)


def locked(operation: Callable[..., Any]) -> Callable[..., Any]:
    """`operation`, inside the lock."""

    @functools.wraps(operation)
    def run(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return operation(*args, **kwargs)

    return run
