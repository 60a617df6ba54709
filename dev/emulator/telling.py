"""What somebody who has sent a message to the worker is told of its end. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dev.emulator.worker_client import Sight
from dev.scenarios.runner.checking import counted
from dev.scenarios.worker.records import DeadLetter, Row

SUCCEEDED, DEAD_LETTERED, NOTHING_RUNS = 0, 1, 2  # exit codes; a request that waits has not failed, so it is a 0
LONGEST = 4000  # characters of a command that somebody can still be asked to copy


@dataclass(frozen=True)
class Told:
    """An exit code, lines to be said, and a command to be copied."""

    code: int
    lines: list[str]
    command: str | None = None


def resend(body: str) -> str:
    """The shell command that sends a body as it is."""
    return f"make work BODY={shlex.quote(body)}"


def tell(sight: Sight, name: str, body: str, manifest: Mapping[str, Any] | None) -> Told:
    """Of a sight that is the last one; `name` is for people. `manifest`: see Sent.manifest."""
    if sight.end == "not begun":
        return Told(
            NOTHING_RUNS,
            [
                "the worker has taken the message, and not begun with it: either the function fails at its start (its "
                "log says why), or this very attempt is being made for an earlier message",
                "it is back on WorkQueue 12 minutes after it was taken",
            ],
        )
    if sight.letter is not None and sight.unworked:
        return _unworked(name, sight.letter)
    if sight.row is None:
        return Told(NOTHING_RUNS, ["the message is gone, and no dead letter is like it: see the functions' log"])
    told = _by_row(name, sight.row, body, sight.letter, manifest)
    if sight.end == "dropped":
        first = f"dropped: the ledger knows this attempt of {name} already. Its row says:"
        return Told(told.code, [first, *told.lines], told.command)
    return told


def _unworked(name: str, letter: DeadLetter) -> Told:
    code = letter.code or "no code"
    lines = [f"{name} is dead-lettered, and nobody has worked on it: {code}", letter.reason or "no reason"]
    if code == "InvalidMessage":
        lines.append("correct the body, and send that")
    return Told(DEAD_LETTERED, lines)


def _by_row(name: str, row: Row, body: str, letter: DeadLetter | None, manifest: Mapping[str, Any] | None) -> Told:
    after = f"after {counted(row.attempts, 'attempt')}"
    if row.status == "SUCCEEDED":
        return Told(SUCCEEDED, [f"{name} has succeeded {after}", *_result(row, manifest)])
    if row.status == "DEAD_LETTERED":
        return _given_up(f"{name} is dead-lettered {after}", row, letter)
    lines = [f"{name} is {row.status} {after}"]
    if row.status == "WAITING":
        lines = [f"{name} is WAITING {after}; the next one begins at {row.next_attempt_at}"]
    if row.last_error:
        lines.append(f"last error: {row.last_error}")
    again = "to see later what has become of it, send the same message again: it is dropped, and the row is shown"
    return _with_command(SUCCEEDED, [*lines, again], body)


def _result(row: Row, manifest: Mapping[str, Any] | None) -> list[str]:
    if manifest is None:
        return [f"its result: {row.result}"]
    lines = [f"its manifest in {manifest['bucket']}: {manifest['key']}"]
    return lines + [
        f"  {part['value']}: {counted(part['records'], 'record')} in {part['key']}" for part in manifest["parts"]
    ]


def _given_up(what: str, row: Row, letter: DeadLetter | None) -> Told:
    if letter is None:
        gone = f"{what}; its dead letter is not in WorkDeadLetterQueue any more"
        return Told(DEAD_LETTERED, [gone, row.last_error or "no error is noted"])
    lines = [f"{what}: {letter.code}", letter.reason or "no reason"]
    again = f"put right what was wrong, be it in the payload, and send the dead letter as attempt {row.attempts + 1}"
    return _with_command(DEAD_LETTERED, [*lines, again], letter.body)


def _with_command(code: int, lines: list[str], body: str) -> Told:
    if len(body) > LONGEST:
        return Told(code, lines)
    return Told(code, [*lines[:-1], f"{lines[-1]}:"], resend(body))
