"""What a million requests a day cost: this design and those that a user would think of first, by arithmetic alone.

Every design is a number of calls for a request that had to wait, times list prices. What a design's calls are follows
from how it lets the refused wait; each is taken at its best: no duplicates, no failures, calls as few as they can be.
"""

from __future__ import annotations

from dataclasses import dataclass

from dev.benchmarks.scale import prices
from slotkeeper.slots.names import execution_name
from slotkeeper_cli.write_units import KB, demand, item_bytes, process_item, write_units

DAY = 86400
DAYS = 30  # of a month
PROCESS, JOB = "process-0000", "job"

STARTER_SECONDS = 0.1  # of an invocation, as docs/costs.md has it
LOG_BYTES = 2 * KB  # of a request that had to wait: the functions' own lines, and Lambda's
TRANSITIONS = 9  # on the way to success (docs/costs.md; a test counts them)
POLLED_TRANSITIONS = 4  # of a look in vain: acquire, catch and read, choose, wait (AWS sample "sfn-semaphore")

Parts = dict[str, float]  # dollars by service


@dataclass(frozen=True)
class Assumed:
    """A day's work.

    Args:
        requests: a day, evenly.
        job: seconds of a run.
        wait: seconds that a request waits, on average: with these requests stand on the queue all day long.
        slots: of a process. There are as many processes as the work needs.
    """

    requests: int = 1_000_000
    job: float = 60
    wait: float = 600
    slots: int = 10

    @property
    def running(self) -> float:
        """Runs at once, at any moment (Little's law)."""
        return self.requests * self.job / DAY

    @property
    def processes(self) -> int:
        return max(1, -(-round(self.running) // self.slots))

    @property
    def waiting(self) -> float:
        """Requests that wait, at any moment."""
        return self.requests * self.wait / DAY


@dataclass(frozen=True)
class Design:
    """A day of one design.

    Args:
        parts: dollars by service, without Glue.
        looks: how often a waiting request is looked at in vain.
        idle: seconds for which a slot stands free before the next run takes it, on average.
        lacks: what it does not do that the others do.
    """

    name: str
    parts: Parts
    looks: float = 0.0
    idle: float = 0.0
    lacks: str = ""

    @property
    def day(self) -> float:
        return sum(self.parts.values())


def ours(given: Assumed, transitions: float = TRANSITIONS, name: str = "wake-up (this)") -> Design:
    """Two invocations for each request that had to wait, whatever its wait and the queue's length."""
    asked = demand(PROCESS, JOB, given.slots)
    # The look after the hide, the read before the wake, and at many slots the look before the reserve.
    reads = 2 + (asked.queued_units < 5 * asked.cycle_units / 3)
    parts = {
        "Step Functions": transitions * prices.TRANSITION,
        "DynamoDB": asked.queued_units * prices.DYNAMODB_WRITE
        + reads * _read_units(asked.bytes) * prices.DYNAMODB_READ,
        "Lambda": 2 * _invocation(),
        "SQS": 6 * prices.SQS_FIFO,
        "events, logs": prices.EVENT + LOG_BYTES / 1024**3 * prices.LOG_GB,
    }
    return Design(name, _of_a_day(given, parts) | {"janitor": janitor(given)}, looks=1)


def janitor(given: Assumed) -> float:
    """Dollars a day of its rounds, one a minute, and of the metrics of each process."""
    rounds = DAY / 60
    size = demand(PROCESS, JOB, given.slots).bytes
    scan = _read_units(size) * given.processes * prices.DYNAMODB_READ
    time = 1.0 * prices.LAMBDA_GB * prices.LAMBDA_GB_SECOND + prices.LAMBDA_INVOCATION
    metrics = given.processes * 4 * prices.METRIC_MONTH / DAYS
    return rounds * (scan + time) + metrics


def visibility_polling(given: Assumed, every: float) -> Design:
    """FIFO, a group a process: the refused head comes back when its visibility timeout is over, and then all who fit.

    Whoever frees a slot tells nobody. So there is no registration and no wake; a slot stands free for half an interval.
    """
    asked = demand(PROCESS, JOB, given.slots)
    looks = given.processes * DAY / every / given.requests  # each ends in one refusal, of the next head
    parts = {
        "Step Functions": (TRANSITIONS - 3) * prices.TRANSITION,  # without ReadWaiting, IsSomebodyWaiting, WakeWaiting
        "DynamoDB": asked.cycle_units * prices.DYNAMODB_WRITE + looks * _look(given),
        "Lambda": (1 + looks) * _invocation(),
        "SQS": (3 + looks) * prices.SQS_FIFO,
        "events, logs": prices.EVENT + LOG_BYTES * (1 + looks) / 2 / 1024**3 * prices.LOG_GB,
    }
    return Design(
        f"visibility, {every:g} s",
        _of_a_day(given, parts),
        looks,
        every / 2,
        "who frees a slot wakes nobody: it stands idle until somebody looks",
    )


def message_polling(given: Assumed, every: float) -> Design:
    """A standard queue: every waiting message comes back when its visibility timeout is over."""
    asked = demand(PROCESS, JOB, given.slots)
    looks = given.wait / every
    parts = {
        "Step Functions": (TRANSITIONS - 3) * prices.TRANSITION,
        "DynamoDB": asked.cycle_units * prices.DYNAMODB_WRITE + looks * _look(given),
        "Lambda": (1 + looks) * _invocation(),
        "SQS": (3 + looks) * prices.SQS_STANDARD,
        "events, logs": prices.EVENT + LOG_BYTES * (1 + looks) / 2 / 1024**3 * prices.LOG_GB,
    }
    # Many messages look, so soon one of them does after a slot has freed.
    idle = every / (1 + given.waiting / given.processes)
    return Design(
        f"each message, {every:g} s",
        _of_a_day(given, parts),
        looks,
        idle,
        "no order: who looks first is first; a message is dropped when it has been received too often",
    )


def workflow_polling(given: Assumed, every: float) -> Design:
    """All start at once, and a loop in the workflow tries to take the lock, waits, and tries again."""
    unit = demand(PROCESS, JOB, given.slots).cycle_units / 3
    looks = given.wait / every
    states = 5 + looks * POLLED_TRANSITIONS  # acquire, run, release, and a choice and an end
    parts = {
        "Step Functions": states * prices.TRANSITION,
        "DynamoDB": (2 + looks) * unit * prices.DYNAMODB_WRITE + looks * prices.DYNAMODB_READ,
        "events, logs": 0.0,
    }
    idle = every / (1 + given.waiting / given.processes)
    lacks = "no order; nobody wakes; ends when its history has 25,000 events; frees no dead holder"
    return Design(f"workflow loop, {every:g} s", _of_a_day(given, parts), looks, idle, lacks)


def transaction(given: Assumed) -> Design:
    """As this, but counter and holders are items of their own, changed together: each costs twice its units."""
    name = execution_name(PROCESS, "0", 1)
    small = item_bytes(process_item(PROCESS, JOB, 0, queued=True) | {"holder": {"S": name}})
    units = write_units(small, small)
    # Reserve and release change both; the refused reserve is one too. Confirm and registration are of one item.
    writes = 3 * 2 * (units + 1) + 1 + units
    parts = dict(ours(given).parts)
    reads = 2 * _read_units(small)
    dynamodb = writes * prices.DYNAMODB_WRITE + reads * prices.DYNAMODB_READ
    return Design("transactions", parts | {"DynamoDB": given.requests * dynamodb}, looks=1)


def glue_only(given: Assumed) -> Design:
    """A function starts each run at once; Glue queues what is above its limits (job run queuing)."""
    parts = {
        "Lambda": _invocation(),
        "SQS": 3 * prices.SQS_STANDARD,
        "events, logs": LOG_BYTES / 2 / 1024**3 * prices.LOG_GB,
    }
    lacks = "limits a job and not a process; no order, no idempotency, nothing kept of what fails"
    return Design("Glue alone", _of_a_day(given, parts), lacks=lacks)


def glue_runs(given: Assumed, dpu: float = prices.GLUE_LEAST) -> float:
    """Dollars a day of the runs themselves."""
    hours = max(given.job / 3600, prices.GLUE_LEAST_HOURS)
    return given.requests * hours * dpu * prices.GLUE_DPU_HOUR


def designs(given: Assumed) -> list[Design]:
    """All of them."""
    polled = [polling(given, every) for polling in (visibility_polling, message_polling) for every in (5, 30, 300)]
    looped = [workflow_polling(given, every) for every in (5, 30, 300)]
    return [ours(given), transaction(given), *polled, *looped, glue_only(given)]


def with_fewer_transitions(given: Assumed) -> list[tuple[str, int, float, str]]:
    """What our own transitions could be: what, how many, dollars a day of all, and what speaks against it."""
    child = prices.EXPRESS_REQUEST + 1.0 * prices.EXPRESS_GB * prices.EXPRESS_GB_SECOND
    ways = [
        ("as it is", TRANSITIONS, 0.0, ""),
        ("the release tells who waits", TRANSITIONS - 1, 0.0, "all of the item comes back: 41 KB at 500 slots"),
        ("and success goes a way of its own from there", TRANSITIONS - 2, 0.0, "release and wake stand twice"),
        ("a function releases, wakes and tells", 4, _invocation(), "it may die between two of them, or be throttled"),
        ("an Express child releases, wakes and tells", 4, child, "it may run twice, or its answer may be lost"),
        ("Express all the way", 0, child, "not possible: it has no .sync and ends after 5 minutes"),
    ]
    own = ours(given)
    rest = own.day - own.parts["Step Functions"]
    return [
        (name, number, rest + given.requests * (more + number * prices.TRANSITION), why)
        for name, number, more, why in ways
    ]


def _invocation() -> float:
    return prices.LAMBDA_INVOCATION + STARTER_SECONDS * prices.LAMBDA_GB * prices.LAMBDA_GB_SECOND


def _look(given: Assumed) -> float:
    """Dollars of a look in vain: a read first or a write that is refused, whichever is cheaper."""
    asked = demand(PROCESS, JOB, given.slots)
    return min(asked.cycle_units / 3 * prices.DYNAMODB_WRITE, _read_units(asked.bytes) * prices.DYNAMODB_READ)


def _read_units(size: int) -> int:
    return max(1, -(-size // (4 * KB)))


def _of_a_day(given: Assumed, parts: Parts) -> Parts:
    return {name: given.requests * each for name, each in parts.items()}
