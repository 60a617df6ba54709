"""Slots: limit how many requests of a process run at the same time.

Exports leases, requests, processes and operator commands. The starter and the janitor are imported from their modules,
so that a function loads only the code it uses.
"""

from slotkeeper.slots.leases import LambdaContext, Lease, Leases, NestedLease, SlotLost, SlotUnavailable, lease
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, execution_name, parse_request

__all__ = [
    "Delivery",
    "Holder",
    "InvalidRequest",
    "LambdaContext",
    "Lease",
    "Leases",
    "MalformedProcess",
    "NestedLease",
    "Operations",
    "Process",
    "Processes",
    "Rate",
    "Request",
    "SlotLost",
    "SlotUnavailable",
    "Slots",
    "execution_name",
    "lease",
    "parse_request",
]
