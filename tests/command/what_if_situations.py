"""What `slotkeeper what-if` answers from the records of an account."""

from __future__ import annotations

from collections.abc import Callable

from tests.command.audit_situations import add_row, audited, malform_row
from tests.command.operator_account import NOW, Operator
from tests.command.situations import Situation


def _burst(number: int) -> Callable[[Operator], None]:
    """Requests that were sent together and ran for ten seconds each, one after the other."""

    def run(operator: Operator) -> None:
        for each in range(number):
            add_row(operator, f"r{each:02}", state="SUCCEEDED", sent=0, started=10 * each, ended=10 * each + 10)

    return run


def _limit_was_changed(operator: Operator, is_audited: bool = True) -> None:
    _burst(20)(operator)
    operator.processes.set_limit("sample", 7)
    if is_audited:
        audited(operator, 2000, "process set-limit", process="sample", before=1, after=7)


def _with_keys(operator: Operator) -> None:
    """A key had one of two slots, and another key the other one once."""
    operator.processes.set_limit("sample", 2)
    operator.processes.set_key_limit("sample", 1)
    for each in range(20):
        add_row(operator, f"r{each:02}", state="SUCCEEDED", sent=0, started=10 * each, ended=10 * each + 10, key="acme")
    add_row(operator, "other", state="SUCCEEDED", sent=50, started=50, ended=60, key="b")


def _kept_for_a_day(operator: Operator) -> None:
    _burst(20)(operator)
    operator.parameters["RequestRetentionDays"] = "1"


def _with_a_malformed_row(operator: Operator) -> None:
    _burst(20)(operator)
    malform_row(operator, "odd")


def _without_an_audit_log(operator: Operator) -> None:
    _burst(20)(operator)
    del operator.aws.log_groups[operator.outputs["AuditLogGroupName"]]


SITUATIONS = {
    "the period is longer than rows are kept": Situation(
        _kept_for_a_day,
        "what-if sample --limit 5",
        says=("Note: the period is cut: rows are kept for 1 day after their end",),
        at=NOW + 200,
    ),
    "the audit log may not be read": Situation(
        _without_an_audit_log,
        "what-if sample --limit 5",
        says=("Note: the audit log was not read completely: ", "so the present settings are taken for those of then"),
        at=NOW + 200,
    ),
    "a row is malformed": Situation(
        _with_a_malformed_row,
        "what-if sample --limit 5",
        says=("the records of process sample could not be read: RequestTable: 1 row is malformed",),
        exit_code=1,
        at=NOW + 200,
    ),
    "a burst at one slot would wait less at five": Situation(
        _burst(20),
        "what-if sample --limit 5",
        says=(
            "(3 min 20 s): 20 requests of process sample that started and ended. 0 waited and 0 ran",
            "recorded    check  limit 5",
            "wait p50                            90.0 s   90.0 s   10.1 s",
            "longest queue                           19       19       19",
            "utilization                           100%     100%      20%",
        ),
        shows={
            "stack": "slotkeeper",
            "limit": 5,
            "requests.samples": 20,
            "recorded.wait.p99": 190.0,
            "check.wait.p99": 190.0,
            "replayed.wait.p50": 10.133,
            "notes": [],
        },
        at=NOW + 200,
    ),
    "a key waits less without its limit": Situation(
        _with_keys,
        "what-if sample --key-limit none",
        says=(
            "recorded    check  limit 2, of keys none",
            'wait p90 of key "acme"             170.0 s  170.0 s                 90.0 s',
            'wait p90 of key "b"                  0.0 s    0.0 s                  0.0 s',
        ),
        shows={"limit": 2, "key_limit": None, "keys.0.key": "acme", "keys.0.replayed": 90.0},
        at=NOW + 200,
    ),
    "no limit is given": Situation(lambda _: None, "what-if sample", says=("give --limit, --key-limit",), exit_code=2),
    "with half the durations at the same limit": Situation(
        _burst(20),
        "what-if sample --limit 1 --duration-factor 0.5 --arrival-factor 2",
        says=("Replayed with durations x 0.5, arrivals x 2", "wait p99", "190.0 s  190.0 s   95.0 s"),
        at=NOW + 200,
    ),
    "the limit was another one, as the audit log states": Situation(
        _limit_was_changed,
        "what-if sample --limit 1",
        says=("wait p99                           190.0 s  190.0 s  190.0 s",),
        at=NOW + 3000,
    ),
    "the limit was another one, as no line states": Situation(
        lambda operator: _limit_was_changed(operator, is_audited=False),
        "what-if sample --limit 1",
        says=("the records of process sample do not explain its waits", "Give --since 46m"),
        exit_code=3,
        at=NOW + 3000,
    ),
}
