"""The report that `make work` prints on the outcome of its message. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dev.emulator.live_view import counted
from dev.emulator.worker_client import DeadLetter, End, LedgerRow, Observation

SUCCEEDED, DEAD_LETTERED, NOTHING_RUNS = 0, 1, 2  # exit codes; a waiting request has not failed, so its code is 0
LONGEST_COMMAND = 4000  # characters; a longer one is hard to copy


@dataclass(frozen=True)
class WorkResult:
    """An exit code, lines to print, and a command to copy."""

    code: int
    lines: list[str]
    command: str | None = None


def resend(body: str) -> str:
    """The shell command that sends a body unchanged."""
    return f"make work BODY={shlex.quote(body)}"


def describe(last: Observation, name: str, body: str, result_lines: Sequence[str]) -> WorkResult:
    """The report on the last observation. `name` is only displayed. `result_lines`: printed after a success."""
    if last.end is End.NOT_BEGUN:
        return WorkResult(
            NOTHING_RUNS,
            [
                "the worker has received the message and not claimed the attempt: it holds the message back "
                "(slotkeeper --local retry breaker show), or an earlier message makes the same attempt now, or the "
                "function fails at its start (its log states why)",
                "a message that is held back returns when the downstream may be called, any other 12 minutes after it "
                "was received",
            ],
        )
    if last.dead_letter is not None and last.unworked:
        return _unworked(name, last.dead_letter)
    if last.row is None:
        return WorkResult(
            NOTHING_RUNS, ["the message left WorkQueue without an outcome or a dead letter: see the functions' log"]
        )
    result = _by_row(name, last.row, body, last.dead_letter, result_lines)
    if last.end is End.DROPPED:
        first = f"dropped: the ledger already has this attempt of {name}. Its row:"
        return WorkResult(result.code, [first, *result.lines], result.command)
    return result


def _unworked(name: str, dead_letter: DeadLetter) -> WorkResult:
    code = dead_letter.code or "no code"
    lines = [f"{name} is dead-lettered without an attempt: {code}", dead_letter.reason or "no reason"]
    if code == "InvalidMessage":
        lines.append("correct the body, and send it again")
    return WorkResult(DEAD_LETTERED, lines)


def _by_row(
    name: str, row: LedgerRow, body: str, dead_letter: DeadLetter | None, result_lines: Sequence[str]
) -> WorkResult:
    after = f"after {counted(row.attempts, 'attempt')}"
    if row.status == "SUCCEEDED":
        return WorkResult(SUCCEEDED, [f"{name} has succeeded {after}", *result_lines])
    if row.status == "DEAD_LETTERED":
        return _dead_lettered(f"{name} is dead-lettered {after}", row, dead_letter)
    lines = [f"{name} is {row.status} {after}"]
    if row.status == "WAITING":
        lines = [f"{name} is WAITING {after}; the next attempt begins at {row.next_attempt_at}"]
    if row.last_error:
        lines.append(f"last error: {row.last_error}")
    again = "to see its outcome later, send the same message again: the worker drops it, and its row is shown"
    return _with_command(SUCCEEDED, [*lines, again], body)


def _dead_lettered(what: str, row: LedgerRow, dead_letter: DeadLetter | None) -> WorkResult:
    if dead_letter is None:
        missing = f"{what}; its dead letter is no longer in WorkDeadLetterQueue"
        return WorkResult(DEAD_LETTERED, [missing, row.last_error or "no error is recorded"])
    lines = [f"{what}: {dead_letter.code}", dead_letter.reason or "no reason"]
    again = f"correct the cause, which may be the payload, and send the dead letter as attempt {row.attempts + 1}"
    return _with_command(DEAD_LETTERED, [*lines, again], dead_letter.body)


def _with_command(code: int, lines: list[str], body: str) -> WorkResult:
    if len(body) > LONGEST_COMMAND:
        return WorkResult(code, lines)
    return WorkResult(code, [*lines[:-1], f"{lines[-1]}:"], resend(body))
