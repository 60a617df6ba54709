"""What `slotkeeper what-if` answers from the records of an account."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.cli.audit_situations import HOUR, add_row
from tests.cli.operator_account import NOW, Operator
from tests.cli.situations import Situation


def _burst(number: int) -> Callable[[Operator], None]:
    """Requests that were sent together and ran for ten seconds each, one after the other."""

    def run(operator: Operator) -> None:
        for each in range(number):
            add_row(operator, f"r{each:02}", state="SUCCEEDED", sent=0, started=10 * each, ended=10 * each + 10)

    return run


_an_hour_later = partial(Situation, at=HOUR)

SITUATIONS = {
    "a burst at one slot would wait less at five": Situation(
        _burst(20),
        "what-if sample --limit 5",
        says=(
            "(3 min 20 s): 20 requests of process sample that started and ended. 0 waited and 0 ran",
            "recorded    check  limit 5",
            "wait p50                            90.0 s   90.0 s   10.0 s",
            "wait p99                           190.0 s  190.0 s   30.0 s",
            "longest queue                           19       19       15",
            "utilization                           100%     100%      20%",
            "slot-hours offered                  0.06 h   0.06 h   0.28 h",
        ),
        shows={
            "stack": "slotkeeper",
            "requests.samples": 20,
            "recorded.wait.p99": 190.0,
            "check.wait.p99": 190.0,
            "replayed.wait.p99": 30.0,
            "replayed.slot_hours_used": 0.056,
            "recorded.starter_invocations": 40,
            "replayed.starter_invocations": 40,
            "notes": [],
        },
        at=NOW + 200,
    ),
    "with half the durations at the same limit": Situation(
        _burst(20),
        "what-if sample --limit 1 --duration-factor 0.5 --arrival-factor 2",
        says=("Replayed with durations x 0.5, arrivals x 2", "wait p99", "190.0 s  190.0 s   95.0 s"),
        at=NOW + 200,
    ),
    "there are too few samples": _an_hour_later(
        _burst(3),
        "what-if sample --limit 3 --since 24h",
        says=("process sample has 3 requests that started and ended", "Give an earlier --since"),
        exit_code=3,
    ),
    "the process is unknown": _an_hour_later(
        _burst(3),
        "what-if orders --limit 3",
        says=("there is no process 'orders'. The processes are: sample",),
        exit_code=4,
    ),
    **{
        f"an option that cannot be replayed: {options}": _an_hour_later(
            lambda _: None, f"what-if sample {options}", says=(why,), exit_code=2
        )
        for options, why in (
            ("--limit 0", "0 is not in the range 1<=x<=100000"),
            ("--limit 1 --duration-factor 0", "0.0 is not in the range 0.01<=x<=100.0"),
            ("--limit 1 --arrival-factor nan", "a factor must be a number from 0.01 to 100, got nan"),
            ("--limit 1 --since 91d", "expected 1m to 90d, such as 90m, 24h or 7d, got '91d'"),
        )
    },
}
