"""Checks of how requests come in: the hand-off of a slot, and two processes at once."""

from __future__ import annotations

import time
from typing import Any

from dev.smoke.bench import Bench
from dev.smoke.outcomes import Failed, NotShown

HAND_OFF = 10.0  # seconds; without the wake it is the hidden message's visibility, three minutes and more


def wake(bench: Bench) -> str:
    """The first request holds the only slot, the second waits; how soon after the release does it start?"""
    process = bench.process()
    first = bench.arn(bench.send(process, "first", bench.pace.hold))
    bench.wait(lambda: bench.execution(first)["status"] == "RUNNING", "the first request to start", bench.pace.start)
    second = bench.arn(bench.send(process, "second", 0))
    bench.wait(lambda: _waits(bench, process, first), "the second request to wait", bench.pace.start)
    bench.wait_for_end(first, "SUCCEEDED")
    began: Any = bench.wait(
        lambda: bench.execution(second).get("startDate"), "the second request to start", bench.pace.start
    )
    released = _left(bench, first, "ReleaseSlot")
    bench.wait_for_end(second, "SUCCEEDED")
    seconds = began.timestamp() - released
    if seconds > HAND_OFF:
        raise Failed(f"{seconds:.1f} s from the release to the next start, and not below {HAND_OFF:.0f} s")
    return f"{seconds:.2f} s from the release to the next start"


def _waits(bench: Bench, process: str, first: str) -> bool:
    if bench.execution(first)["status"] != "RUNNING":
        raise NotShown("the first request was done before the second had been refused, so nobody waited")
    return bench.item(process).waiting_since is not None


def _left(bench: Bench, arn: str, state: str) -> float:
    """When an execution left a state."""
    for event in bench.history(arn):
        if event.get("stateExitedEventDetails", {}).get("name") == state:
            moment: float = event["timestamp"].timestamp()
            return moment
    raise Failed(f"{arn} has never left {state}")


def groups(bench: Bench) -> str:
    """Two processes, one slot and one request each: are their workflows under way at the same time?"""
    names = [bench.send(bench.process(suffix), "only", bench.pace.hold) for suffix in ("-a", "-b")]
    ended = [bench.wait_for_end(bench.arn(name), "SUCCEEDED") for name in names]
    together = min(each["stopDate"] for each in ended) - max(each["startDate"] for each in ended)
    apart = abs((ended[0]["startDate"] - ended[1]["startDate"]).total_seconds())
    if together.total_seconds() <= 0:
        raise Failed(f"the second process's request started when the first one's was done, {apart:.1f} s later")
    return f"started {apart:.1f} s apart, and ran side by side for {together.total_seconds():.0f} s"


def listing(bench: Bench) -> str:
    """How long after Step Functions has StartJobRun's answer does GetJobRuns tell of the run?"""
    if bench.stack.local:
        raise NotShown("the embedded Glue lists a run as it begins it; there is nothing to measure")
    name = bench.send(bench.process(), "only", 0)
    arn = bench.arn(name)
    bench.wait(lambda: bench.execution(arn)["status"] != "NONE", "its start", bench.pace.start)
    answered = listed = 0.0

    def both() -> bool:
        nonlocal answered, listed
        listed = listed or (time.monotonic() if bench.glue_run(name) else 0.0)
        submitted = answered or any(event["type"] == "TaskSubmitted" for event in bench.history(arn))
        answered = answered or (time.monotonic() if submitted else 0.0)
        return bool(answered and listed)

    bench.wait(both, "Glue to list its run", bench.pace.start)
    late = max(0.0, listed - answered)
    gap = bench.stack.look_gap
    if late >= gap:
        raise Failed(
            f"listed {late:.1f} s after the answer: two looks {gap:.0f} s apart (LookGapSeconds) may both miss it"
        )
    bench.wait_for_end(arn, "SUCCEEDED")
    return f"listed at most {late + bench.pace.look:.1f} s after the answer; LookGapSeconds is {gap:.0f}"
