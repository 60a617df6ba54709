"""The slots: at most so many requests of a process run at once.

Exports the protocol, requests, processes, queues and the operators' steps. The starter's admission and the janitor have
modules of their own, so that a function loads only what it uses.
"""

from slotkeeper.slots.cancellation import CancelOutcome
from slotkeeper.slots.operations import Operations
from slotkeeper.slots.process import Holder, MalformedProcess, Process, Processes
from slotkeeper.slots.protocol import (
    AlreadyHeld,
    Cancelled,
    Full,
    Granted,
    Misconfigured,
    Paused,
    Registration,
    Slots,
    UnknownProcess,
)
from slotkeeper.slots.queues import FailedRequestQueue, RequestQueue, wake_next
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, execution_name, parse_request

__all__ = [
    "AlreadyHeld",
    "CancelOutcome",
    "Cancelled",
    "Delivery",
    "FailedRequestQueue",
    "Full",
    "Granted",
    "Holder",
    "InvalidRequest",
    "MalformedProcess",
    "Misconfigured",
    "Operations",
    "Paused",
    "Process",
    "Processes",
    "Registration",
    "Request",
    "RequestQueue",
    "Slots",
    "UnknownProcess",
    "execution_name",
    "parse_request",
    "wake_next",
]
