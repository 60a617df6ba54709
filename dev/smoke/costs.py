"""The estimated cost of a run, item by item.

It assumes the list prices of us-east-1 in May 2026, in US dollars (the pages "AWS Glue pricing", "AWS Step Functions
pricing", "AWS Lambda pricing", "Amazon SQS pricing", "Amazon DynamoDB pricing", "Amazon EventBridge pricing", "Amazon
CloudWatch pricing"), without a free tier. A call of TestState is counted as a state transition. Other regions cost up
to half as much again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

AS_OF = "list prices of us-east-1, May 2026, without a free tier"
DPU_HOUR = 0.44
DPUS = 1 / 16  # the sample job's MaxCapacity
LEAST_SECONDS = 60  # Glue bills a Python shell run per second, with a minimum of one minute
TRANSITION = 25e-6  # Step Functions, standard workflows
INVOCATION = 0.2e-6 + 0.5 * 3 * 13.3e-6  # Lambda, arm64: half a GB for some 3 s
QUEUE_REQUEST = 0.5e-6  # SQS, FIFO
ITEM_WRITE = 0.625e-6  # DynamoDB, on demand
SCHEDULE = 1e-6
METRIC = 10e-6  # CloudWatch, a metric that GetMetricData reads


@dataclass(frozen=True)
class Spending:
    """The billed actions of one check. `glue` has the seconds of each of its Glue runs, as an upper estimate."""

    glue: tuple[float, ...] = ()
    transitions: int = 0
    invocations: int = 0
    queue_requests: int = 200  # without the polling of the stack's queues, which it pays for anyway
    writes: int = 20
    schedules: int = 0
    metrics: int = 0


@dataclass(frozen=True)
class Item:
    """One line of the bill. `dollars` is not rounded."""

    what: str
    arithmetic: str
    dollars: float


def bill(spendings: Iterable[Spending]) -> list[Item]:
    """The bill of a run."""
    wanted = list(spendings)
    runs = [max(LEAST_SECONDS, seconds) for each in wanted for seconds in each.glue]
    counts = [
        ("Step Functions, state transitions", sum(each.transitions for each in wanted), TRANSITION),
        ("Lambda, invocations of 3 s", sum(each.invocations for each in wanted), INVOCATION),
        ("SQS, requests", sum(each.queue_requests for each in wanted), QUEUE_REQUEST),
        ("DynamoDB, writes", sum(each.writes for each in wanted), ITEM_WRITE),
        ("EventBridge Scheduler, schedules", sum(each.schedules for each in wanted), SCHEDULE),
        ("CloudWatch, metrics read", sum(each.metrics for each in wanted), METRIC),
    ]
    glue = Item(
        f"Glue, {len(runs)} Python shell runs",
        f"{sum(runs):.0f} s x 1/16 DPU x ${DPU_HOUR} an hour",
        sum(runs) / 3600 * DPUS * DPU_HOUR,
    )
    return [glue, *(Item(what, f"{count} x ${price:.7f}", count * price) for what, count, price in counts)]


def total(items: Iterable[Item]) -> float:
    """The sum of a bill, in dollars."""
    return sum(item.dollars for item in items)
