"""Injected faults in a task's service call and in the API. Applied with a fault file only.

`dev.emulator.faults.Faults` writes and explains the rules.
"""

import asyncio
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import dynamodb, eventbridge, glue, patch, refused, responses, sns, sqs, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_tasks import abandoned, leave_running

START = "StartExecution"
STEP_SECONDS = 0.02
CONFLICT, ONGOING = "TransactionConflictException", "Transaction is ongoing for the item"


@patch
def injected_faults() -> None:
    """A call is lost, refused, delayed or followed by a stop.

    AWS warns of each: an answer that is lost after the effect ("Handling errors in Step Functions workflows"; "Making
    retries safe with idempotent APIs", Builders' Library), a refusal, a stop in between, a transaction that is writing
    the item ("Amazon DynamoDB Transactions: How it works", Transaction conflict handling in DynamoDB).
    """
    rules = Rules(Path(os.environ["SLOTKEEPER_ENGINE_FAULTS"]))
    wrap(sfn, "_invoke_resource", partial(_task_call, rules))
    for service in (sfn, dynamodb, sqs, glue, eventbridge, sns):
        wrap(service, "handle_request", partial(_request, rules))


class Rules:
    """The rules of one file, read again after each change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fired_file = file.with_name(file.name + ".fired")
        self._fired_file.unlink(missing_ok=True)
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._rules: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    def take(self, execution: str, state: str) -> dict[str, Any] | None:
        """The first rule for this call that has acted less than `times`. Counts it as acting."""
        with self._lock:
            for rule in self._read():
                if rule["execution"] not in ("*", execution) or rule["state"] != state:
                    continue
                if rule["times"] and self._counts[rule["id"]] >= rule["times"]:
                    continue
                self._counts[rule["id"]] += 1
                with self._fired_file.open("a") as fired:
                    fired.write(f"{rule['id']} {execution}\n")
                return rule
        return None

    def holds(self, rule_id: str) -> bool:
        """Whether the rule is still in the file."""
        with self._lock:
            return any(rule["id"] == rule_id for rule in self._read())

    def _read(self) -> list[dict[str, Any]]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            self._seen, self._rules = None, []
            return self._rules
        version = (status.st_mtime_ns, status.st_ino)  # dev.emulator.faults replaces the file at each change
        if version != self._seen:
            self._rules, self._seen = json.loads(self._file.read_text()), version
        return self._rules


def _task_call(rules: Rules, original: Callable[..., Any], resource: str, given: Any) -> Any:
    drive = drives.current.get()
    if drive is None:
        return original(resource, given)
    drives.note_parameters(given)  # also of a call that a fault prevents
    execution = drive.execution
    rule = rules.take(execution["name"], drives.state_name.get())
    if rule is None:
        return original(resource, given)
    action = rule["action"]
    if action in ("delay", "hold"):
        deadline = time.monotonic() + float(rule.get("seconds") or 0)
        while rules.holds(rule["id"]) if action == "hold" else time.monotonic() < deadline:
            drive.wait(STEP_SECONDS)
            timed_out = abandoned.get()
            if timed_out is not None and timed_out.is_set():
                raise drives.Ending  # timed out while held: the call must not be made
        return original(resource, given)
    if action == "late":
        result = original(resource, given)
        drive.wait(float(rule["seconds"]))
        return result
    if action == "leave_running":
        leave_running.add(execution["name"])
        return original(resource, given)
    if action == "abort_before":
        drives.stop(execution["executionArn"], "Fault", f"stopped before the call of {drives.state_name.get()}")
        drive.check()
    if action in ("lose_answer", "abort_after"):
        # The lost answer of a job is that of its start, not of its end.
        original(resource.partition(".sync")[0], given)
    if action == "abort_after":
        drives.stop(execution["executionArn"], "Fault", f"stopped after the call of {drives.state_name.get()}")
        drive.check()
    if action == "conflict":
        raise sfn._ExecutionError(f"DynamoDB.{CONFLICT}", ONGOING)
    cause = "" if rule["error"] == "States.Timeout" else f"fault {rule['id']}: {action}"
    raise sfn._ExecutionError(rule["error"], cause)


async def _request(
    rules: Rules, original: Callable[..., Any], method: Any, path: Any, headers: Any, body: Any, query: Any
) -> Any:
    # SNS has the query protocol, in which the body names the operation.
    target = headers.get("x-amz-target", "") or parse_qs(body).get(b"Action", [b""])[0].decode()
    operation = target.rpartition(".")[2]
    execution = json.loads(body).get("name", "") if operation == START else ""
    rule = rules.take(execution, operation)
    if rule is None:
        return await original(method, path, headers, body, query)
    action = rule["action"]
    if action == "refuse":
        return refused(rule["error"], f"fault {rule['id']}: {action}")
    if action == "conflict":
        return _conflict(json.loads(body).get("TransactItems"))
    if action == "delay":
        await asyncio.sleep(float(rule["seconds"]))
    while action == "hold" and rules.holds(rule["id"]):
        await asyncio.sleep(STEP_SECONDS)
    answer = await original(method, path, headers, body, query)
    if action == "abort_after" and operation == START and answer[0] < 400:
        drives.stop(json.loads(answer[2])["executionArn"], "Fault", "stopped after its start")
    if action == "late":
        await asyncio.sleep(float(rule["seconds"]))
    if action == "lose_answer":
        return responses.error_response_json("InternalFailure", f"fault {rule['id']}: {action}", 500)
    return answer


def _conflict(parts: list[Any] | None) -> Any:
    """The answer while a transaction is writing the item, or the last one of these parts of a transaction."""
    if parts is None:
        return refused(CONFLICT, ONGOING)
    reasons: list[dict[str, str]] = [{"Code": "None"} for _ in parts]
    reasons[-1] = {"Code": "TransactionConflict", "Message": ONGOING}
    status, headers, body = refused("TransactionCanceledException", "Transaction cancelled")
    return status, headers, json.dumps({**json.loads(body), "CancellationReasons": reasons}).encode()
