"""The smoke test: the table's rows and the checks of the deployed stack, in a real account or on `make local-up`.

The rows run in parallel, each with an account of its own, whose creations are removed after it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.facts import request_facts, table
from tests.facts.account import IN_AWS, Account, Timings
from tests.facts.facts import EMBEDDED, REAL, Fact, Failed, NotShown, is_denied
from tests.facts.stack import StackUnderTest

FACTS = [fact for fact in (*request_facts.FACTS, *table.FACTS) if REAL in fact.on]
AT_A_TIME = 16  # rows; the longest come first
# Some fifteen Glue runs of a sixteenth of a DPU, of which Glue bills at least a minute each, 500 state transitions, and
# some thousand requests. Other regions cost up to half as much again.
COST = "about $0.02 (list prices of us-east-1, May 2026, without a free tier)"
WITHOUT_ROLE = {"dynamodb", "sqs", "notifications", "schedules"}  # groups without state machines
MAILS = ("stopped", "answer_of_an_abort")  # rows whose failed requests are published to the stack's topic
_THROTTLED = ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded")
_REPORT_IT = "; report it: the doubles of the tests answer as recorded or documented"

type Say = Callable[[str, str], None]


class Verdict(StrEnum):
    AS_EXPECTED = "as expected"
    DIFFERENT = "different"
    NOT_SHOWN = "could not be shown"
    NOT_TRIED = "not tried here"


@dataclass
class Result:
    """AWS's answer to a row. `means`: what to change if it is different, or why there is no answer."""

    fact: Fact
    verdict: Verdict
    answer: Any = None
    means: str = ""
    left_behind: list[str] = field(default_factory=list)


def judged(fact: Fact, account: Account) -> Result:
    """Ask, and compare the answer."""
    try:
        answer = fact.ask(account)
    except NotShown as error:
        return Result(fact, Verdict.NOT_SHOWN, means=str(error))
    except Exception as error:  # the other rows are still asked
        if isinstance(error, BotoCoreError) or is_denied(error) or _is_throttled(error):
            return Result(fact, Verdict.NOT_SHOWN, means=str(error))
        known = isinstance(error, Failed | ClientError)
        answer = str(error) if known else f"unexpected error: {type(error).__name__}: {error}"
        return Result(fact, Verdict.DIFFERENT, answer, _means(fact))
    if fact.agrees(answer):
        return Result(fact, Verdict.AS_EXPECTED, answer)
    return Result(fact, Verdict.DIFFERENT, answer, _means(fact))


def _is_throttled(error: Exception) -> bool:
    return isinstance(error, ClientError) and error.response["Error"]["Code"] in _THROTTLED


def _means(fact: Fact) -> str:
    return (fact.depends or fact.source) + _REPORT_IT


def run(stack: StackUnderTest, facts: Sequence[Fact], say: Say) -> tuple[str, list[Result], list[str]]:
    """Return the run's name, the results in the order of `facts`, and what is left of what they share.

    Ctrl-C ends the rows, but not their clean-up. After it KeyboardInterrupt is raised again.

    Args:
        say: receives a row's name and a line of progress.
    """
    name, stopped = f"smoke-{secrets.token_hex(4)}", Event()
    timings = Timings() if stack.local else IN_AWS
    shared = Account(stack.client, name, timings=timings, stack=stack, stopped=stopped)

    def show(fact: Fact) -> Result:
        account = Account(stack.client, name, timings=timings, role=role, stack=stack, stopped=stopped)
        if stack.local and EMBEDDED not in fact.on:
            return Result(fact, Verdict.NOT_TRIED, means="the embedded AWS cannot show it")
        if stopped.is_set():
            return Result(fact, Verdict.NOT_SHOWN, means="interrupted")
        began = time.monotonic()
        result = judged(fact, account)
        result.left_behind = account.clean_up()
        measured = f", {result.answer}" if callable(fact.expected) and result.verdict is Verdict.AS_EXPECTED else ""
        say(fact.name, f"{result.verdict}, {time.monotonic() - began:.0f} s{measured}")
        return result

    try:
        role = _role(shared) if {fact.group for fact in facts} - WITHOUT_ROLE else ""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            futures = [pool.submit(show, fact) for fact in facts]
            results: list[Result] = []
            for future in futures:
                while len(results) <= futures.index(future):
                    try:
                        results.append(future.result())
                    except KeyboardInterrupt:
                        say("", "interrupted; cleaning up")
                        stopped.set()
    finally:
        left = shared.clean_up()
    if stopped.is_set():
        raise KeyboardInterrupt
    return name, results, left


def _role(account: Account) -> str:
    """Create the role of the rows' state machines. It permits what the rows create, and requests to the stack."""
    outputs = account.stack.outputs
    _, partition, _, region, account_id, *_ = outputs["WorkflowArn"].split(":")

    def allow(service: str, resource: str, *actions: str) -> dict[str, Any]:
        arn = f"arn:{partition}:{service}:{region}:{account_id}:{resource}"
        return {"Effect": "Allow", "Action": [f"{service}:{action}" for action in actions], "Resource": arn}

    run = account.run
    allowed = [
        allow("sqs", f"{run}-*", "SendMessage"),
        allow("sqs", outputs["RequestQueueArn"].rpartition(":")[2], "SendMessage"),
        allow("dynamodb", f"table/{run}-*", "GetItem", "PutItem", "UpdateItem"),
        allow("states", f"stateMachine:{run}-*", "StartExecution"),
        allow("states", f"execution:{run}-*", "DescribeExecution", "StopExecution"),
        # Only tasks of the machines `caller` (Tasks), and those of their Distributed Maps.
        allow("states", f"stateMachine:{run}-*-caller", "SendTaskSuccess", "SendTaskHeartbeat"),
        allow("glue", f"job/{run}-*", "StartJobRun", "GetJobRun", "GetJobRuns", "BatchStopJobRun"),
        allow("events", "rule/StepFunctions*", "PutTargets", "PutRule", "DescribeRule"),
    ]
    if "KmsKeyArn" in outputs:
        allowed.append(allow("kms", outputs["KmsKeyArn"].rpartition(":")[2], "Decrypt", "GenerateDataKey"))
    trust = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
    iam, name = account.client("iam"), account.name("role")

    def document(*statements: dict[str, Any]) -> str:
        return json.dumps({"Version": "2012-10-17", "Statement": statements})

    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(trust))
    iam.put_role_policy(RoleName=name, PolicyName="smoke", PolicyDocument=document(*allowed))
    account.stopped.wait(account.timings.settle)
    return str(made["Role"]["Arn"])
