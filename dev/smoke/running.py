"""Running the checks beside each other, each with its own processes, and each cleaned up however it ends."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

from botocore.exceptions import BotoCoreError, ClientError

from dev.smoke.bench import INPUT, Bench
from dev.smoke.catalogue import Check
from dev.smoke.ending import clean_up, remove_objects
from dev.smoke.letters import Letters
from dev.smoke.outcomes import Failed, Interrupted, NotShown, Result, Skipped, Status
from dev.smoke.pace import Pace
from dev.smoke.stack import Stack

SERVICES = ("cloudformation", "dynamodb", "glue", "lambda", "s3", "scheduler", "sqs", "stepfunctions")
_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")

Say = Callable[[str, str], None]


def run_checks(stack: Stack, checks: Sequence[Check], pace: Pace, say: Say) -> tuple[str, list[Result]]:
    """The run's own name, and what became of each check, in their order. `say` gets a check's name and a line.

    Ctrl-C ends the waiting and not the clean-up; then KeyboardInterrupt goes on to the caller.
    """
    run = f"smoke-{secrets.token_hex(4)}"
    for service in SERVICES:
        stack.client(service)  # boto3 makes clients in one thread only
    letters = Letters(stack.client("sqs"), run)
    stopped = Event()
    benches = [Bench(stack, pace, run, check.name, letters, partial(say, check.name), stopped) for check in checks]
    bucket = stack.outputs["DataBucketName"]
    stack.client("s3").put_object(Bucket=bucket, Key=f"dev/smoke/{run}/input.csv", Body=INPUT.encode())
    with ThreadPoolExecutor(len(checks)) as pool:
        futures = [pool.submit(_run, check, bench) for check, bench in zip(checks, benches, strict=True)]
        interrupted = False
        results: list[Result] = []
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
    results[-1].left_behind += remove_objects(benches[-1])
    if interrupted:
        raise KeyboardInterrupt
    return run, results


def _run(check: Check, bench: Bench) -> Result:
    began = time.monotonic()
    status, found = _judge(check, bench)
    left = clean_up(bench)
    bench.say(f"{status}: {found}")
    for each in left:
        bench.say(f"left behind: {each}")
    return Result(check.name, status, found, time.monotonic() - began, left)


def _judge(check: Check, bench: Bench) -> tuple[Status, str]:
    try:
        return "passed", check.carry_out(bench)
    except Skipped as reason:
        return "skipped", str(reason)
    except NotShown as reason:
        return "not shown", str(reason)
    except Interrupted:
        return "skipped", "interrupted"
    except Failed as reason:
        return "failed", str(reason)
    except ClientError as error:
        if error.response["Error"]["Code"] in _DENIED:
            return "skipped", f"you may not do what it needs: {error}"
        return "failed", str(error)
    except BotoCoreError as error:
        return "failed", str(error)
    except Exception as error:  # a mistake of this program is no word about AWS, and the others go on
        return "failed", f"the check itself broke: {type(error).__name__}: {error}"
