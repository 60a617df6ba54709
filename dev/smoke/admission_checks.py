"""Checks of admission: the hand-off of a slot, parallel processes, and the listing of Glue runs."""

from __future__ import annotations

import time
from typing import Any

from dev.smoke.check_context import CheckContext
from dev.smoke.check_results import Failed, NotShown

HAND_OFF = 10.0  # seconds; without a wake the message stays hidden for over three minutes


def wake(context: CheckContext) -> str:
    """Measure how soon a waiting request starts after the release of the only slot."""
    process = context.process()
    first = context.arn(context.send(process, "first", context.timings.hold))
    context.wait(
        lambda: context.execution(first)["status"] == "RUNNING", "the first request to start", context.timings.start
    )
    second = context.arn(context.send(process, "second", 0))
    context.wait(lambda: _waits(context, process, first), "the second request to wait", context.timings.start)
    context.wait_for_end(first, "SUCCEEDED")
    started: Any = context.wait(
        lambda: context.execution(second).get("startDate"), "the second request to start", context.timings.start
    )
    released = _left(context, first, "ReleaseSlot")
    context.wait_for_end(second, "SUCCEEDED")
    seconds = started.timestamp() - released
    if seconds > HAND_OFF:
        raise Failed(f"{seconds:.1f} s from the release to the next start; expected at most {HAND_OFF:.0f} s")
    return f"{seconds:.2f} s from the release to the next start"


def _waits(context: CheckContext, process: str, first: str) -> bool:
    if context.execution(first)["status"] != "RUNNING":
        raise NotShown("the first request ended before the second one was refused, so no request waited")
    return bool(context.item(process).waiting)


def _left(context: CheckContext, arn: str, state: str) -> float:
    """When an execution left a state, in seconds since the epoch. Raises Failed if it did not."""
    for event in context.history(arn):
        if event.get("stateExitedEventDetails", {}).get("name") == state:
            moment: float = event["timestamp"].timestamp()
            return moment
    raise Failed(f"{arn} did not leave the state {state}")


def groups(context: CheckContext) -> str:
    """Check that the workflows of two processes, with one slot and one request each, overlap."""
    names = [context.send(context.process(suffix), "only", context.timings.hold) for suffix in ("-a", "-b")]
    ended = [context.wait_for_end(context.arn(name), "SUCCEEDED") for name in names]
    together = min(each["stopDate"] for each in ended) - max(each["startDate"] for each in ended)
    apart = abs((ended[0]["startDate"] - ended[1]["startDate"]).total_seconds())
    if together.total_seconds() <= 0:
        raise Failed(f"the second process's request started after the first one's end, {apart:.1f} s later")
    return f"started {apart:.1f} s apart, and ran in parallel for {together.total_seconds():.0f} s"


def listing(context: CheckContext) -> str:
    """Measure the time from StartJobRun's answer to the run's first appearance in GetJobRuns."""
    if context.stack.local:
        raise NotShown("the embedded Glue lists a run when it starts it, so there is no delay to measure")
    name = context.send(context.process(), "only", 0)
    arn = context.arn(name)
    context.wait(lambda: context.execution(arn)["status"] != "NONE", "its start", context.timings.start)
    answered = listed = 0.0

    def both() -> bool:
        nonlocal answered, listed
        listed = listed or (time.monotonic() if context.glue_run(name) else 0.0)
        submitted = answered or any(event["type"] == "TaskSubmitted" for event in context.history(arn))
        answered = answered or (time.monotonic() if submitted else 0.0)
        return bool(answered and listed)

    context.wait(both, "Glue to list its run", context.timings.start)
    late = max(0.0, listed - answered)
    gap = context.stack.look_gap
    if late >= gap:
        raise Failed(
            f"listed {late:.1f} s after the answer: two checks {gap:.0f} s apart (LookGapSeconds) may both miss it"
        )
    context.wait_for_end(arn, "SUCCEEDED")
    return f"listed at most {late + context.timings.poll:.1f} s after the answer; LookGapSeconds is {gap:.0f}"
