"""Run the checks in parallel, each with its own processes, and clean up after each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

from dev.smoke.check_catalogue import Check
from dev.smoke.check_cleanup import clean_up, remove_objects
from dev.smoke.check_context import INPUT, CheckContext, RunMessages, Timings
from dev.smoke.facts import CheckResult, FactAnswer, Verdict, judged
from dev.smoke.stack_under_test import StackUnderTest

Say = Callable[[str, str], None]


def run_checks(
    stack: StackUnderTest, checks: Sequence[Check], timings: Timings, say: Say
) -> tuple[str, list[CheckResult]]:
    """Return the run's name and the results, in the order of the checks. `say` receives a check's name and a line.

    Ctrl-C ends the checks, but not the clean-up. After it KeyboardInterrupt is raised again.
    """
    run = f"smoke-{secrets.token_hex(4)}"
    messages = RunMessages(stack.client("sqs"), run)
    stopped = Event()
    contexts = [
        CheckContext(stack, timings, run, check.name, messages, partial(say, check.name), stopped) for check in checks
    ]
    bucket = stack.outputs["DataBucketName"]
    stack.client("s3").put_object(Bucket=bucket, Key=f"smoke/{run}/input.csv", Body=INPUT.encode())
    with ThreadPoolExecutor(len(checks)) as pool:
        futures = [pool.submit(_run, check, context) for check, context in zip(checks, contexts, strict=True)]
        results: list[CheckResult] = []
        for future in futures:
            while True:
                try:
                    results.append(future.result())
                except KeyboardInterrupt:
                    say("", "interrupted; cleaning up")
                    stopped.set()
                else:
                    break
    results[-1].left_behind += remove_objects(contexts[-1])
    if stopped.is_set():
        raise KeyboardInterrupt
    return run, results


def _run(check: Check, context: CheckContext) -> CheckResult:
    result = CheckResult(check.name)
    for fact in check.facts:
        if context.stopped.is_set():
            result.answers.append(FactAnswer(fact, Verdict.NOT_SHOWN, means="interrupted"))
            continue
        context.say(f"{fact.name}: {fact.asks}")
        answer = judged(fact, context)
        result.answers.append(answer)
        context.say(f"{fact.name}: {answer.verdict}")
    result.left_behind = clean_up(context)
    for each in result.left_behind:
        context.say(f"left behind: {each}")
    return result
