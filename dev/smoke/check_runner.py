"""Run the checks in parallel, each with its own processes, and clean up after each."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

from botocore.exceptions import BotoCoreError, ClientError

from dev.smoke.check_catalogue import Check
from dev.smoke.check_cleanup import clean_up, remove_objects
from dev.smoke.check_context import INPUT, CheckContext
from dev.smoke.check_results import CheckEnded, CheckResult, Status
from dev.smoke.run_messages import RunMessages
from dev.smoke.stack_under_test import StackUnderTest
from dev.smoke.timings import Timings

SERVICES = (
    "cloudformation",
    "cloudwatch",
    "dynamodb",
    "events",
    "glue",
    "iam",
    "lambda",
    "s3",
    "scheduler",
    "sqs",
    "stepfunctions",
)
_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")

Say = Callable[[str, str], None]


def run_checks(
    stack: StackUnderTest, checks: Sequence[Check], timings: Timings, say: Say, step: Callable[[], None] = lambda: None
) -> tuple[str, list[CheckResult]]:
    """Return the run's name and the results, in the order of the checks. `say` receives a check's name and a line.

    `step` is called once for each fact, and for each check without facts.

    Ctrl-C ends the checks, but not the clean-up. After it KeyboardInterrupt is raised again.
    """
    run = f"smoke-{secrets.token_hex(4)}"
    for service in SERVICES:
        stack.client(service)  # creating a client is not thread-safe in boto3
    messages = RunMessages(stack.client("sqs"), run)
    stopped = Event()
    contexts = [
        CheckContext(stack, timings, run, check.name, messages, partial(say, check.name), stopped, step)
        for check in checks
    ]
    bucket = stack.outputs["DataBucketName"]
    stack.client("s3").put_object(Bucket=bucket, Key=f"smoke/{run}/input.csv", Body=INPUT.encode())
    with ThreadPoolExecutor(len(checks)) as pool:
        futures = [pool.submit(_run, check, context) for check, context in zip(checks, contexts, strict=True)]
        interrupted = False
        results: list[CheckResult] = []
        for future in futures:
            while True:
                try:
                    results.append(future.result())
                except KeyboardInterrupt:
                    say("", "interrupted; cleaning up")
                    interrupted = True
                    stopped.set()
                else:
                    break
    results[-1].left_behind += remove_objects(contexts[-1])
    if interrupted:
        raise KeyboardInterrupt
    return run, results


def _run(check: Check, context: CheckContext) -> CheckResult:
    started = time.monotonic()
    status, finding = _judge(check, context)
    left = clean_up(context)
    if not check.facts:
        context.step()
    context.say(f"{status}: {finding}")
    for each in left:
        context.say(f"left behind: {each}")
    return CheckResult(check.name, status, finding, time.monotonic() - started, left, context.answers)


def _judge(check: Check, context: CheckContext) -> tuple[Status, str]:
    try:
        return Status.PASSED, check.carry_out(context)
    except CheckEnded as ended:
        return ended.status, str(ended)
    except (ClientError, BotoCoreError) as error:
        if isinstance(error, ClientError) and error.response["Error"]["Code"] in _DENIED:
            return Status.SKIPPED, f"the check needs a permission that you do not have: {error}"
        return Status.FAILED, str(error)
    except Exception as error:  # an error of this program shows nothing about AWS; the other checks continue
        return Status.FAILED, f"the check raised an unexpected error: {type(error).__name__}: {error}"
