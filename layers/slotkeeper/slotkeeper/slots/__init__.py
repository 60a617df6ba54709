"""Slots: limit how many requests of a process run at the same time.

Exports the protocol, leases, requests, processes, queues and operator commands. The starter (`admission`) and the
janitor are imported from their modules, so that a function loads only the code it uses.
"""

from slotkeeper.slots.cancellation import CancelOutcome
from slotkeeper.slots.lease_terms import LambdaContext, NestedLease, SlotLost, SlotUnavailable
from slotkeeper.slots.leases import Lease, Leases, lease
from slotkeeper.slots.operations import Operations
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import FailedRequestQueue, RequestQueue, wake_next
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, execution_name, parse_request
from slotkeeper.slots.reservation import (
    AlreadyHeld,
    Cancelled,
    Candidate,
    Full,
    Granted,
    Misconfigured,
    Paused,
    Registration,
    UnknownProcess,
)

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
