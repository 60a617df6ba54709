"""Running the checks in parallel, each with its own processes, and each cleaned up however it ends."""

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
from dev.smoke.check_results import CheckResult, Failed, Interrupted, NotShown, Skipped, Status
from dev.smoke.run_messages import RunMessages
from dev.smoke.stack_under_test import StackUnderTest
from dev.smoke.timings import Timings

SERVICES = ("cloudformation", "dynamodb", "glue", "lambda", "s3", "scheduler", "sqs", "stepfunctions")
_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")

Say = Callable[[str, str], None]


def run_checks(
    stack: StackUnderTest, checks: Sequence[Check], timings: Timings, say: Say
) -> tuple[str, list[CheckResult]]:
    """The run's own name, and the result of each check, in their order. `say` gets a check's name and a line.

    Ctrl-C ends the waiting and not the clean-up; then KeyboardInterrupt goes on to the caller.
    """
    run = f"smoke-{secrets.token_hex(4)}"
    for service in SERVICES:
        stack.client(service)  # boto3 makes clients in one thread only
    messages = RunMessages(stack.client("sqs"), run)
    stopped = Event()
    contexts = [
        CheckContext(stack, timings, run, check.name, messages, partial(say, check.name), stopped) for check in checks
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
    context.say(f"{status}: {finding}")
    for each in left:
        context.say(f"left behind: {each}")
    return CheckResult(check.name, status, finding, time.monotonic() - started, left)


def _judge(check: Check, context: CheckContext) -> tuple[Status, str]:
    try:
        return Status.PASSED, check.carry_out(context)
    except Skipped as reason:
        return Status.SKIPPED, str(reason)
    except NotShown as reason:
        return Status.NOT_SHOWN, str(reason)
    except Interrupted:
        return Status.SKIPPED, "interrupted"
    except Failed as reason:
        return Status.FAILED, str(reason)
    except ClientError as error:
        if error.response["Error"]["Code"] in _DENIED:
            return Status.SKIPPED, f"you lack a permission that it needs: {error}"
        return Status.FAILED, str(error)
    except BotoCoreError as error:
        return Status.FAILED, str(error)
    except Exception as error:  # a mistake of this program is no word about AWS, and the others go on
        return Status.FAILED, f"the check itself broke: {type(error).__name__}: {error}"
