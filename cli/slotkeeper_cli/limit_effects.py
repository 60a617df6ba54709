"""The effects of a process's limit: holders and waiting requests above it, and what its Glue job or item allow."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from slotkeeper.slots.process import Process
from slotkeeper.slots.targets import is_state_machine
from slotkeeper_cli.formatting import count
from slotkeeper_cli.job_checks import concurrency_problems, get_job, most_holders
from slotkeeper_cli.request_ids import RequestIds
from slotkeeper_cli.run_times import usual_seconds
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.waiting_requests import as_dict, label, waiting_requests
from slotkeeper_cli.write_units import size_problems


@dataclass(frozen=True)
class LimitEffects:
    """The holders and waiting requests of a process that are above its limit.

    Args:
        process: as it was read, with its new limit.
        heavy: the weight of each holder above the limit, by execution.
        blocked: the waiting requests above the limit, as JSON shows them.
    """

    process: Process
    heavy: dict[str, int]
    blocked: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """The effects as JSON shows them."""
        return {"in_use": self.process.slots_in_use, "holders_above_limit": self.heavy, "blocked": self.blocked}

    def lines(self, request_ids: RequestIds) -> list[str]:
        """The effects as text, empty if there are none."""
        ids = request_ids.find(list(self.heavy))
        heavy = [f"{ids.get(name, name)} (weight {weight})" for name, weight in self.heavy.items()]
        lines = _in_use(self.process)
        if heavy:
            lines.append(f"Above the limit alone: {', '.join(heavy)}.")
        for waiting in self.blocked:
            after = "it and those of its priority behind it wait until the limit is raised"
            lines.append(f"Blocked: {label(waiting)}; {after}.")
        return lines


def limit_effects(process: Process) -> LimitEffects:
    """The effects of the limit that a process has."""
    limit, now = process.slot_limit, time.time()
    heavy = {name: holder.weight for name, holder in process.holders.items() if limit < holder.weight != 1}
    blocked = [as_dict(process, one, now) for one in waiting_requests(process, now) if process.is_blocked(one)]
    return LimitEffects(process, heavy, blocked)


def _in_use(process: Process) -> list[str]:
    holders, limit = len(process.holders), process.slot_limit
    if process.held_weight <= limit:
        return []
    if process.held_weight == holders:
        return [f"{count(holders - limit, 'holder')} above the limit will finish; until then no request is admitted."]
    return [
        f"{count(holders, 'holder')} have {process.held_weight} in use: no request is admitted until enough of them "
        "have ended."
    ]


def limit_problems(stack: StackConnection, process: Process, processes: Iterable[Process]) -> list[str]:
    """Why fewer requests may run than the limit allows, and what to do; empty if there is no reason.

    Args:
        processes: all processes, whose runs of the same Glue job are counted.
    """
    job = None if is_state_machine(process.target) else get_job(stack, process.target)
    of_job = (one for one in processes if one.target == process.target)
    runs = sum(most_holders(one.slot_limit, one.default_weight) for one in of_job)
    problems = concurrency_problems(process.target, job, runs) if job else []
    holders = most_holders(process.slot_limit, process.default_weight)
    try:
        run_seconds = usual_seconds(stack, process.target)
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        problems.append(f"the times of the newest runs of {process.target} could not be read ({code})")
        run_seconds = None
    problems += size_problems(process, holders, run_seconds)
    if process.slot_limit < process.default_weight != 1:
        weight = process.default_weight
        problems.append(
            f"the default weight {weight} is above the limit {process.slot_limit}, so requests without a weight wait: "
            f"raise the limit with slotkeeper process set-limit {process.name} {weight}"
        )
    return problems
