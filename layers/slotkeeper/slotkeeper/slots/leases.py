"""Leases: take a slot of a process for a block of code, without the queue.

    with slots.lease("licence", context, wait=20):                # in a Lambda function: until the invocation's end
    with slots.lease("licence", seconds=60, wait=20) as lease:    # elsewhere; lease.extend(60), lease.remaining()

A lease ends by time, because no service knows whether a block of code still runs. So the limit holds (S1c) under two
premises, next to the write conditions that S1 needs:

- Any two clocks differ by less than CLOCK_SKEW_SECONDS (5 s).
- Each block is left, or its lease extended, before the lease's end.

More precisely: if a block overruns by t seconds, and t plus the difference of the clocks exceeds CLOCK_SKEW_SECONDS,
another caller can use the slot at the same time, for as long as the block still runs.

Lambda enforces the second premise: it stops an invocation at its deadline. In three cases nothing does:

- Outside Lambda, and on Lambda Managed Instances.
- In a thread that a handler leaves behind: it is frozen with the instance, and continues in a later invocation.
- In work that the block started elsewhere, such as a request that the other side still handles.

There, pass `seconds`, and check `remaining()` before each step that needs the slot.

A lease is granted only if no request waits that could start, so callers that poll never delay the queue. Leases among
each other have no order. lease_protocol.py has the writes.
"""

from __future__ import annotations

import functools
import math
import os
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.clients import client_config
from slotkeeper.settings import CLOCK_SKEW_SECONDS, MAX_WEIGHT
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.lease_protocol import LeaseRefused, LeaseSteps, LeaseTerm, Taken, UnknownProcess, logger
from slotkeeper.slots.plan import Behind, Blocked, InPause, Stopped, TooEarly, TooManyHolders
from slotkeeper.slots.process import PROCESS_NAME, MalformedProcess, Process
from slotkeeper.slots.request_table import RequestTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

# Seconds. A slot stays taken for as long after its holder has died. Extend a lease to hold it longer.
MAX_LEASE_SECONDS = 86_400
# Seconds before the end of an invocation at which waiting ends, so that the caller can still handle SlotUnavailable.
_SPARE_SECONDS = 1.0
_MOST_AGES = 10  # in a message


class LambdaContext(Protocol):
    """The part of Lambda's context object that a lease needs."""

    def get_remaining_time_in_millis(self) -> int: ...


class SlotUnavailable(RuntimeError):
    """No slot was free within `wait`. The block did not run. `seen`: the process as it was read last."""

    def __init__(self, message: str, seen: Process) -> None:
        super().__init__(message)
        self.seen = seen

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle passes the message alone. A pool of processes, which sends errors by pickle, would hang.
        return type(self), (str(self), self.seen), vars(self)


class SlotLost(RuntimeError):
    """The lease ended before its block, and its slot was freed or taken over. More blocks than the limit may run."""


class NestedLease(RuntimeError):
    """This thread or asyncio task already holds a lease of the process, and could wait for itself."""


@dataclass(frozen=True)
class Length:
    """How long a lease is, and how long its caller waits for it, in seconds. `context`: see `lease`.

    Raises:
        ValueError: see `lease`.
    """

    context: LambdaContext | None
    seconds: float | None

    def __post_init__(self) -> None:
        if self.context is None and self.seconds is None:
            raise ValueError(
                "a lease needs an end: pass the context of the Lambda function, or seconds=. Nothing was taken"
            )
        if self.context is not None and not hasattr(self.context, "get_remaining_time_in_millis"):
            raise ValueError(
                f"context must be the object that Lambda passes to the handler, got {self.context!r}. For a length in "
                "seconds use seconds=. Nothing was taken"
            )
        if self.seconds is None:
            return
        if not _is_number(self.seconds) or not 0 < self.seconds <= MAX_LEASE_SECONDS:
            raise ValueError(
                f"seconds must be a number above 0 and up to {MAX_LEASE_SECONDS}, got {self.seconds!r}. Extend a "
                "lease to hold it longer"
            )
        if self.seconds > self.left:
            raise ValueError(
                f"a lease of {self.seconds:g} s is longer than the invocation, which ends in {self.left:.1f} s. Ask "
                "for less, or raise the function's timeout"
            )

    @property
    def left(self) -> float:
        """The seconds until Lambda stops the invocation, infinite without a context."""
        return math.inf if self.context is None else self.context.get_remaining_time_in_millis() / 1000

    def longest_wait(self, wait: float) -> float:
        """At most `wait`, and so that the invocation then still has the time that the block needs."""
        return min(wait, self.left - max(self.seconds or 0, _SPARE_SECONDS))

    def term(self, clock: float, monotonic: float, code: str) -> LeaseTerm:
        """Return the end of a lease that begins at these times."""
        seconds = self.left if self.seconds is None else self.seconds
        return LeaseTerm(clock + seconds, code, monotonic + seconds)


def check_arguments(process: str, wait: float, weight: int | None) -> None:
    """Raise ValueError if an argument of `lease` is not valid. The message states the valid values."""
    if not isinstance(process, str) or not PROCESS_NAME.fullmatch(process):
        raise ValueError(f"process name must be 1 to 47 characters of A-Z a-z 0-9 _ -, got {process!r}")
    if not _is_number(wait) or not 0 <= wait < math.inf:
        raise ValueError(f"wait must be a finite number of seconds, 0 or more, got {wait!r}")
    is_whole = isinstance(weight, int) and not isinstance(weight, bool)
    if weight is not None and not (is_whole and 1 <= weight <= MAX_WEIGHT):
        raise ValueError(f"weight must be a whole number from 1 to {MAX_WEIGHT}, got {weight!r}")


def unavailable(weight: int | None, waited: float, refused: LeaseRefused, now: float) -> SlotUnavailable:
    """Return the error for a process that refused a lease. `waited`: seconds; `now`: seconds since the epoch."""
    seen = refused.seen
    weighs = weight or seen.default_weight
    match refused.reason:
        case Blocked() | Stopped():
            why = f"the lease's weight {weighs} is above the limit. An operator must raise the limit"
        case InPause():
            why = "the process is paused. An operator must resume it"
        case TooManyHolders(most):
            why = f"a process can have {most} holders"
        case Behind():
            why = "requests in the queue come first"
        case TooEarly(due):
            why = f"its rate of {seen.rate} permits the next start in {max(0.0, due / 1000 - now):.1f} s"
        case _:
            why = "all slots are in use" if weighs == 1 else f"a lease of weight {weighs} does not fit"
    ages = sorted((max(0, int(now - holder.since)) for holder in seen.holders.values()), reverse=True)
    held = "no holder" if not ages else f"{len(ages)} holders, since " if len(ages) > 1 else "1 holder, since "
    held += ", ".join(f"{age} s" for age in ages[:_MOST_AGES]) + (", ..." if len(ages) > _MOST_AGES else "")
    after = f" within {waited:.0f} s" if waited >= 1 else ""
    return SlotUnavailable(
        f"no slot of {seen.name!r} was available{after}: {why}. Limit {seen.slot_limit}, in use {seen.slots_in_use} by "
        f"{held}. The block did not run. Try again, or wait longer with wait=",
        seen,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Seconds between two attempts: full jitter between the first and a maximum, which doubles up to the longest. With many
# holders the item is large and its readers are many: at 500 holders a read takes 19 of the 3,000 read units per second
# of one item (DynamoDB guide, "Service, account, and table quotas").
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.02, 1.0
HOLDERS_PER_WAIT = 100  # with as many holders, the waits are twice as long

# The leases of this thread or asyncio task. A task that is started in a block begins with those of the block, which may
# wait for it, and a thread with none (Python documentation, "contextvars").
_held: ContextVar[tuple[Lease, ...]] = ContextVar("held", default=())
_lock = threading.RLock()  # boto3's default session is not thread-safe (boto3 guide, "Multithreading")
if hasattr(os, "register_at_fork"):
    # A fork waits until no other thread creates a client. Otherwise its child would have a locked lock that no thread
    # releases, and wait for it forever.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Lease:
    """A slot that is held. `Leases.lease` makes it."""

    def __init__(self, leases: Leases, process: str, name: str, term: LeaseTerm, context: LambdaContext | None) -> None:
        self.process, self.name = process, name
        self._process_id = os.getpid()
        self._leases, self._term, self._context = leases, term, context
        self._is_released = False

    @property
    def is_held(self) -> bool:
        """Whether this process must still release the lease. A fork leaves its parent's leases to the parent."""
        return not self._is_released and os.getpid() == self._process_id

    def is_of(self, table_name: str, process: str) -> bool:
        """Whether it is a slot of this process in this table."""
        return (self._leases.table_name, self.process) == (table_name, process)

    def remaining(self) -> float:
        """Return the seconds until the lease's end; 0.0 after it, and after the block."""
        left = self._term.remaining(self._leases.clock(), self._leases.monotonic())
        return 0.0 if self._is_released else left

    def extend(self, seconds: float) -> None:
        """Move the lease's end to `seconds` from now, unless it is later already.

        Raises:
            ValueError: `seconds` is not above 0 and up to MAX_LEASE_SECONDS, or beyond the end of the invocation.
            SlotLost: the slot is no longer held. Stop using what it protects.
            ClientError, BotoCoreError: the call failed. The lease ends as before.
        """
        length = Length(self._context, seconds)
        term = length.term(self._leases.clock(), self._leases.monotonic(), self._term.code)
        if self._is_released or not self._leases.steps.extend(self.process, self.name, term):
            raise SlotLost(
                f"cannot extend the lease of a slot of {self.process!r}: it has ended, and the slot is no longer held. "
                "Stop using what it protects. Extend a lease before its end"
            )
        if term.end > self._term.end:
            self._term = term

    def release(self) -> None:
        """Free the slot. A failed call is logged and not raised: the block has ended, and the lease ends by itself.

        It has no effect a second time, nor in a fork, which leaves the block too, but does not hold the slot.

        Raises:
            SlotLost: the slot was no longer held.
        """
        if not self.is_held:
            return
        self._is_released = True
        overran = self._leases.clock() >= self._term.end + CLOCK_SKEW_SECONDS
        try:
            is_released = self._leases.steps.release(self.process, self.name, self._term.code, overran=overran)
        except (ClientError, BotoCoreError) as error:
            logger.warning("Could not release a slot of %s; it is free after its lease: %r", self.process, error)
            return
        if not is_released:
            raise SlotLost(
                f"the lease of a slot of {self.process!r} ended before its block, and the slot was freed or taken "
                "over. More blocks than the limit may have run. Ask for more seconds, or extend the lease in time"
            )


def _held_here() -> tuple[Lease, ...]:
    return tuple(lease for lease in _held.get() if lease.is_held)


class _Block(AbstractContextManager[Lease]):
    """Takes a lease when its block begins, and releases it when the block ends. It is for one block.

    It is no generator: Python closes one that is not referenced any more, and would release the lease of
    `lease(...).__enter__()` immediately.
    """

    def __init__(self, take: Callable[[], Lease]) -> None:
        self._take = take
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("a lease is for one block: call lease() again for the next one. Nothing was taken")
        self._lease = self._take()
        _held.set((*_held_here(), self._lease))
        return self._lease

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._lease is not None:
                self._lease.release()
        except SlotLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))  # it must not hide the exception of the block
        finally:
            _held.set(_held_here())


class Leases:
    """Takes leases of the processes in one table. Threads can share it.

    Args:
        dynamodb, sqs: clients; by default with timeouts for a Lambda function. `sqs` rings the doorbell.
        request_table_name, dispatch_queue_url: of the stack, for processes that also run requests.
        owner: a part of the holders' names, for operators; by default the Lambda function's name, or the host's.
        clock: seconds since the epoch.
        monotonic: seconds.
        jitter: returns a random number between two numbers.
        new_code: returns a random text for codes and names.
    """

    def __init__(
        self,
        table_name: str,
        dynamodb: DynamoDBClient | None = None,
        sqs: SQSClient | None = None,
        *,
        request_table_name: str = "",
        dispatch_queue_url: str = "",
        owner: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
        new_code: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.clock, self.monotonic = clock, monotonic
        self.table_name, self._sqs, self._dispatch_queue_url = table_name, sqs, dispatch_queue_url
        self._sleep, self._jitter, self._new_code = sleep, jitter, new_code
        owner = owner or os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or socket.gethostname()
        self._owner = re.sub(r"[^A-Za-z0-9_-]", "-", owner)[:40]
        if dynamodb is None:
            with _lock:
                dynamodb = boto3.client("dynamodb", config=client_config(read_timeout=2, attempts=3))
        requests = RequestTable(dynamodb, request_table_name, table_name) if request_table_name else None
        self.steps = LeaseSteps(dynamodb, table_name, requests, self._doorbell, _count_skipped_ring, clock)

    def lease(
        self,
        process: str,
        context: LambdaContext | None = None,
        *,
        seconds: float | None = None,
        wait: float = 0,
        weight: int | None = None,
    ) -> AbstractContextManager[Lease]:
        """Hold a slot for a block of code: `slotkeeper.slots.lease` describes arguments and errors."""

        def take() -> Lease:
            check_arguments(process, wait, weight)
            length = Length(context, seconds)
            if any(held.is_of(self.table_name, process) for held in _held_here()):
                raise NestedLease(
                    f"this thread or asyncio task already holds a slot of {process!r}, and could wait for itself. "
                    "Nothing was taken. Use the outer lease, with weight= if the work needs more of the limit"
                )
            return self._take(process, length, wait, weight)

        return _Block(take)

    def _take(self, process: str, length: Length, wait: float, weight: int | None) -> Lease:
        code = self._new_code()
        began = self.monotonic()
        give_up = began + length.longest_wait(wait)
        longest = FIRST_WAIT_SECONDS
        while True:
            name = f"lease-{self._owner}-{self._new_code()[:8]}"
            # The time before the call: the lease must not end later here than in the table.
            clock, term = self.clock(), length.term(self.clock(), self.monotonic(), code)
            match self._attempt(process, name, weight, term, clock):
                case Taken():
                    lease = Lease(self, process, name, term, length.context)
                    if not lease.remaining():
                        with suppress(SlotLost):
                            lease.release()
                        raise SlotLost(
                            f"taking a slot of {process!r} lasted longer than its lease. The block did not run. Ask "
                            "for more seconds"
                        )
                    return lease
                case UnknownProcess():
                    raise LookupError(
                        f"process {process!r} does not exist in table {self.table_name}. Add it with slotkeeper "
                        "process add, or in a table of your own with Processes.create. Nothing was taken"
                    )
                case LeaseRefused(seen, reason) as refused:
                    left = give_up - self.monotonic()
                    if left <= 0:
                        raise unavailable(weight, self.monotonic() - began, refused, self.clock())
                    longest = min(2 * longest, LONGEST_WAIT_SECONDS)
                    pause = longest * (1 + len(seen.holders) / HOLDERS_PER_WAIT)
                    due = reason.due / 1000 - self.clock() if isinstance(reason, TooEarly) else 0.0
                    self._sleep(min(left, max(due, self._jitter(FIRST_WAIT_SECONDS, pause))))

    def _attempt(
        self, process: str, name: str, weight: int | None, term: LeaseTerm, now: float
    ) -> Taken | LeaseRefused | UnknownProcess:
        try:
            return self.steps.take(process, name, weight, term, now)
        except MalformedProcess as error:
            raise MalformedProcess(f"process {process!r} of table {self.table_name}: {error}") from error
        except LookupError:
            raise
        except BaseException:
            # The call may have been effective, and nothing would free the slot before the end of the lease. A signal
            # may interrupt it too.
            with suppress(ClientError, BotoCoreError):
                self.steps.release(process, name, term.code)
            raise

    def _doorbell(self) -> Doorbell | None:
        if not self._dispatch_queue_url:
            return None
        if self._sqs is None:
            with _lock:
                self._sqs = boto3.client("sqs", config=client_config(read_timeout=2, attempts=3))
        return Doorbell(self._sqs, self._dispatch_queue_url)


def lease(
    process: str,
    context: LambdaContext | None = None,
    *,
    seconds: float | None = None,
    wait: float = 0,
    weight: int | None = None,
    table: str = "",
) -> AbstractContextManager[Lease]:
    """Hold a slot of a process for a block of code.

    Args:
        context: of a Lambda function: the lease ends at the invocation's deadline.
        seconds: the length of the lease, instead of the deadline, from before the call that takes the slot. With a
            context, at most the time that is left.
        wait: seconds for which to wait for a free slot. With a context, less if the invocation would end before.
        weight: in the limit's unit. By default the process's default weight.
        table: the name of the slot table. By default the environment variable SLOT_TABLE_NAME. For a process that also
            runs requests, the environment must have REQUEST_TABLE_NAME and DISPATCH_QUEUE_URL.

    Raises:
        ValueError: an argument is not valid, or the lease would be longer than the invocation. Nothing was taken.
        NestedLease: this thread or asyncio task already holds a slot of the process. Nothing was taken.
        SlotUnavailable: no slot was free within `wait`. The block did not run.
        SlotLost: at the end of the block, if the lease ended before and its slot was used by another caller. An
            exception of the block is raised instead. Before the block, if taking the slot lasted longer than the lease.
        LookupError: the process does not exist, or runs requests, and the environment lacks their table.
        MalformedProcess: the process's item does not have the documented types.
        ClientError, BotoCoreError: DynamoDB refused the lease, or could not be reached.
    """
    table = table or os.environ.get("SLOT_TABLE_NAME", "")
    if not table:
        raise ValueError("the environment lacks SLOT_TABLE_NAME, the slot table. Set it, or pass table=")
    leases = _leases_of(table, os.getpid())
    return leases.lease(process, context, seconds=seconds, wait=wait, weight=weight)


@functools.cache
def _leases_of(table: str, process_id: int) -> Leases:  # noqa: ARG001 a fork must not share connections
    requests, queue = (os.environ.get(name, "") for name in ("REQUEST_TABLE_NAME", "DISPATCH_QUEUE_URL"))
    return Leases(table, request_table_name=requests, dispatch_queue_url=queue)


def _count_skipped_ring(process: str) -> None:
    """Count in Lambda, where stdout becomes metrics; elsewhere the log line of LeaseSteps has to do."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        from aws_lambda_powertools.metrics import MetricUnit  # noqa: PLC0415 seldom needed, and slow to import

        from slotkeeper.observability import measure_process  # noqa: PLC0415

        measure_process(process, MetricUnit.Count, LeaseRingsSkipped=1)
