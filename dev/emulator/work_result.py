"""What `make work` prints of the outcome of its message. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dev.emulator.live_view import counted
from dev.emulator.worker_client import DeadLetter, End, LedgerRow, Observation

SUCCEEDED, DEAD_LETTERED, NOTHING_RUNS = 0, 1, 2  # exit codes; a request that waits has not failed, so it is a 0
LONGEST_COMMAND = 4000  # characters that can still be copied


@dataclass(frozen=True)
class WorkResult:
    """An exit code, lines to print, and a command to copy."""

    code: int
    lines: list[str]
    command: str | None = None


def resend(body: str) -> str:
    """The shell command that sends a body as it is."""
    return f"make work BODY={shlex.quote(body)}"


def describe(last: Observation, name: str, body: str, manifest: Mapping[str, Any] | None) -> WorkResult:
    """Of the last observation; `name` is for people. `manifest`: see SentMessage.manifest."""
    if last.end is End.NOT_BEGUN:
        return WorkResult(
            NOTHING_RUNS,
            [
                "the worker has taken the message, and not begun with it: either the function fails at its start (its "
                "log states why), or this very attempt is being made for an earlier message",
                "it is back on WorkQueue 12 minutes after it was taken",
            ],
        )
    if last.letter is not None and last.unworked:
        return _unworked(name, last.letter)
    if last.row is None:
        return WorkResult(NOTHING_RUNS, ["the message is gone, and no dead letter is like it: see the functions' log"])
    result = _by_row(name, last.row, body, last.letter, manifest)
    if last.end is End.DROPPED:
        first = f"dropped: the ledger knows this attempt of {name} already. Its row:"
        return WorkResult(result.code, [first, *result.lines], result.command)
    return result


def _unworked(name: str, letter: DeadLetter) -> WorkResult:
    code = letter.code or "no code"
    lines = [f"{name} is dead-lettered, and was never worked on: {code}", letter.reason or "no reason"]
    if code == "InvalidMessage":
        lines.append("correct the body, and send that")
    return WorkResult(DEAD_LETTERED, lines)


def _by_row(
    name: str, row: LedgerRow, body: str, letter: DeadLetter | None, manifest: Mapping[str, Any] | None
) -> WorkResult:
    after = f"after {counted(row.attempts, 'attempt')}"
    if row.status == "SUCCEEDED":
        return WorkResult(SUCCEEDED, [f"{name} has succeeded {after}", *_result(row, manifest)])
    if row.status == "DEAD_LETTERED":
        return _dead_lettered(f"{name} is dead-lettered {after}", row, letter)
    lines = [f"{name} is {row.status} {after}"]
    if row.status == "WAITING":
        lines = [f"{name} is WAITING {after}; the next one begins at {row.next_attempt_at}"]
    if row.last_error:
        lines.append(f"last error: {row.last_error}")
    again = "to see its outcome later, send the same message again: it is dropped, and the row is shown"
    return _with_command(SUCCEEDED, [*lines, again], body)


def _result(row: LedgerRow, manifest: Mapping[str, Any] | None) -> list[str]:
    if manifest is None:
        return [f"its result: {row.result}"]
    parts = (f"  {part['value']}: {counted(part['records'], 'record')} in {part['key']}" for part in manifest["parts"])
    return [f"its manifest in {manifest['bucket']}: {manifest['key']}", *parts]


def _dead_lettered(what: str, row: LedgerRow, letter: DeadLetter | None) -> WorkResult:
    if letter is None:
        gone = f"{what}; its dead letter is not in WorkDeadLetterQueue any more"
        return WorkResult(DEAD_LETTERED, [gone, row.last_error or "no error is recorded"])
    lines = [f"{what}: {letter.code}", letter.reason or "no reason"]
    again = f"correct the cause, which may be the payload, and send the dead letter as attempt {row.attempts + 1}"
    return _with_command(DEAD_LETTERED, [*lines, again], letter.body)


def _with_command(code: int, lines: list[str], body: str) -> WorkResult:
    if len(body) > LONGEST_COMMAND:
        return WorkResult(code, lines)
    return WorkResult(code, [*lines[:-1], f"{lines[-1]}:"], resend(body))
