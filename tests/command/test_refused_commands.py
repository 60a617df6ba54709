"""Commands that are refused for their options or names alone, and change nothing. The stack has a process `sample`."""

from __future__ import annotations

import shlex

import pytest

from tests.command.account_contents import waiting
from tests.command.operator_account import Operator

ADD = "process add new --limit 2 --target sample-job"
BREAKER_OPEN = "retry breaker open --yes"
SUBMIT = "request submit --process sample --request-id nightly"
PAST = "2020-11-28T08:00:00+01:00"

USAGE_ERRORS = [
    "process pause",
    "process pause sample --all",
    *(f"process set-limit sample -- {limit}" for limit in ("-1", "100001", "many")),
    *(f"process set-key-limit sample -- {limit}" for limit in ("-1", "100001", "9" * 5000, "1.5", "\u0663", "''")),
    *(f"process set-key-limit sample 1 --key={key}" for key in ("", "x" * 65, "'a\tb'")),
    f"{ADD} --key-limit=-1",
    *(f"request submit --process sample --key={key}" for key in ("", "x" * 65)),
    "request submit --file - --key a",
    "explain r --key a",
    *(f"{command} --key a" for command in ("request cancel r", "explain")),
    *(f"{ADD} --default-weight={weight}" for weight in ("0", "1.5", "100001", "two")),
    *(f"process add {name} --limit 2 --target sample-job" for name in ("''", "'a b'", "x" * 48)),
    "request cancel",
    *(
        f"request cancel a {options}"
        for options in ("--all", "--priority high", "--older-than 2h", "--all --process p")
    ),
    *(f"request cancel --process sample --all {options}" for options in ("--stop", "--older-than 2", "--priority x")),
    "request list sample --state waiting",
    "request list",
    *(f"failed {command}" for command in ("redrive", "discard", "redrive a --start-before 2020-11-28T08:00:00+01:00")),
    *(f"request list sample {period}" for period in ("--until 1h", "--since 1h --until 2h", "--since x")),
    "request submit",
    "request submit --process sample --file -",
    *(f"request submit --file - {option}" for option in ("--request-id a", "--priority high", "--weight 2")),
    "request submit --file 'no such file'",
    *(f"request submit --process sample --weight {weight}" for weight in ("0", "1.5", "100001")),
    *(f"request submit --process sample {option}" for option in ("--priority urgent", "--arg day", "--request-id ''")),
    "dlq discard request --yes",
    *(f"dlq redrive request --yes {selection}" for selection in ("", "--all --code Expired", "--all --id m")),
    "status --watch 1 --json",
    "retry breaker show 'a b'",
    f"{BREAKER_OPEN} a/b --why x",
    *(f"{BREAKER_OPEN} {why}" for why in ("", "--why ' '", f"--why {'x' * 201}")),
    *(f"retry limit -- {limit}" for limit in ("0", "-1", "many")),
    f"retry limit 2 --downstream {'x' * 65}",
    *(f"retry run-now {options}" for options in ("", "r --overdue", "--overdue --payload -")),
]
NO_PROCESS = "there is no process 'SAMPEL'. Did you mean 'sample'?"
OF_A_PROCESS = [
    *(f"{command} SAMPEL" for command in ("status", "audit", "what-if --limit 2", "stack reconcile --yes")),
    *(f"process {command} SAMPEL" for command in ("pause", "resume", "remove --yes", "repair --yes")),
    *(f"process {command}" for command in ("set-limit SAMPEL 2", "set-rate SAMPEL 1/minute")),
    *(f"process set-key-limit SAMPEL {limit}" for limit in ("2", "none --key a")),
    *(f"{command} --process SAMPEL" for command in ("explain", "explain r", "request submit", "request cancel r")),
    *("request list SAMPEL", "request list SAMPEL --since 1h", "request cancel --all --process SAMPEL"),
]
REASONS = [
    ("audit --since 2099-01-01", 2, "is in the future: it is 20"),
    ("audit --since yesterday", 2, "expected 90m, 24h or 7d, or a time such as"),
    ("audit --since 1h --until 2h", 2, "must be before --until"),
    ("audit --since 91d", 2, "is too early: Step Functions keeps executions for 90 days"),
    ("explain", 2, "give the id of a request or the name of a lease, or --process alone"),
    ("what-if sample --limit 0", 2, "0 is not in the range 1<=x<=100000"),
    ("what-if sample --limit 1 --duration-factor 0", 2, "0.0 is not in the range 0.01<=x<=100.0"),
    ("what-if sample --limit 1 --arrival-factor nan", 2, "a factor must be a number from 0.01 to 100, got nan"),
    ("what-if sample --limit 1 --since 91d", 2, "expected 1m to 90d, such as 90m, 24h or 7d, got '91d'"),
    ("doctor --only alarm", 2, "no check alarm. Did you mean 'alarms'? The checks are: "),
    *((f"retry report --since={each}", 2, "expected 1m to 14d") for each in ("", "24", "0h", "15d", "1w", "59", "-1h")),
    (f"{ADD} --rate ten/minute", 2, "a rate must be COUNT/UNIT"),
    (f"{ADD} --rate 0/minute", 2, "a rate must have a whole number above 0 as count"),
    (f"{ADD} --rate 1001/second", 2, "a rate must be at most 1000 starts a second"),
    (f"{ADD} --rate 10/minute --burst 11", 2, "a rate must have a burst of at most its count, 10, got 11"),
    (f"{ADD} --burst 2", 2, "--burst needs --rate"),
    (f"{ADD} --settle-seconds 5", 2, "settle time is for state machines"),
    (f"{SUBMIT} --start-before tomorrow", 2, "--start-before: expected HH:MM, or a date and a time"),
    (f"{SUBMIT} --start-before ''", 2, "--start-before: expected HH:MM, or a date and a time"),
    (f"{SUBMIT} --start-before {PAST}", 2, "--start-before: 2020-11-28 07:00:00 UTC has passed"),
    ("holder release sample-0123", 4, "sample-0123"),
    *((f"retry {step} unknown --yes", 4, "has no request 'unknown'") for step in ("cancel", "run-now")),
    *(
        (f"retry breaker {step}", 4, "there is no downstream 'defualt'. Did you mean 'default'? The known")
        for step in ("show defualt", "close defualt --why x")
    ),
    *((command, 4, f"{NO_PROCESS} The processes are: sample") for command in OF_A_PROCESS),
]


@pytest.mark.parametrize(
    ("command", "exit_code", "reason"), [*((command, 2, "") for command in USAGE_ERRORS), *REASONS]
)
def test_a_command_is_refused_and_nothing_is_changed(
    operator: Operator, command: str, exit_code: int, reason: str
) -> None:
    before = operator.process()

    ended = operator.run(*shlex.split(command))

    assert ended.exit_code == exit_code, ended.stderr
    assert reason in " ".join(ended.stderr.replace("│", " ").split())
    assert (operator.process(), operator.slots.read("new"), operator.audited()) == (before, None, [])
    assert waiting(operator, "RequestQueue") == []
