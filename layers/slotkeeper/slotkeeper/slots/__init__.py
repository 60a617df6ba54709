"""Slots: limit how many requests of a process run at the same time.

Exports the protocol, leases, requests, processes, queues and operator commands. The starter (`admission`) and the
janitor are imported from their modules, so that a function loads only the code it uses.
"""

from slotkeeper.slots.leases import LambdaContext, Lease, Leases, NestedLease, SlotLost, SlotUnavailable, lease
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.processes import CancelOutcome, Operations, Processes
from slotkeeper.slots.protocol import (
    AlreadyHeld,
    Cancelled,
    Candidate,
    Full,
    Granted,
    Misconfigured,
    Paused,
    Registration,
    Slots,
    UnknownProcess,
)
from slotkeeper.slots.queues import FailedRequestQueue, RequestQueue, wake_next
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, execution_name, parse_request

__all__ = [
    "AlreadyHeld",
    "CancelOutcome",
    "Cancelled",
    "Candidate",
    "Delivery",
    "FailedRequestQueue",
    "Full",
    "Granted",
    "Holder",
    "InvalidRequest",
    "LambdaContext",
    "Lease",
    "Leases",
    "MalformedProcess",
    "Misconfigured",
    "NestedLease",
    "Operations",
    "Paused",
    "Process",
    "Processes",
    "Rate",
    "Registration",
    "Request",
    "RequestQueue",
    "SlotLost",
    "SlotUnavailable",
    "Slots",
    "UnknownProcess",
    "execution_name",
    "lease",
    "parse_request",
    "wake_next",
]
