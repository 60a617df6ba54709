"""The checks of R5 to R7 (docs/correctness.md), by the calls of the work as far as possible."""

from __future__ import annotations

import json
from typing import NamedTuple

from slotkeeper.retry.message import parse_message
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from tests.simulation.frozen import Record, remembered
from tests.simulation.retry_actors import INVOCATION
from tests.simulation.worlds import Violation

CLOSED, OPEN, HALF_OPEN = "CLOSED", "OPEN", "HALF_OPEN"


class Stored(NamedTuple):
    """The fields of a downstream's item that the checks use. `writer`: the delivery or command that wrote it."""

    state: str = CLOSED
    epoch: int = 0
    forced: bool = False
    probe_at: float = 0.0
    limit: int = 0
    permits: tuple[tuple[str, float], ...] = ()
    writer: str = ""


class Asked(NamedTuple):
    """The item after a delivery's last call of it before its work."""

    item: Stored
    is_own: bool  # the delivery wrote the item
    is_spent: bool  # a retry had failed less than a window before, and no call had succeeded since
    hung: bool  # whether a call of the item's epoch had hung until its permit ended


class Work(NamedTuple):
    """Work under way. `is_probe`: it began in a half-open breaker. `limit`: the limit when it asked; 0 without one."""

    is_probe: bool
    limit: int


@remembered
def read(item: Record | None) -> Stored:
    """Read a downstream's item."""
    if item is None:
        return Stored()
    health = json.loads(item["health"]["S"])
    fields = {name: health[name] for name in ("state", "epoch", "forced", "probe_at", "limit")}
    permits = tuple(sorted((code.rpartition(".")[0], until) for code, (until, _) in health["permits"].items()))
    return Stored(**fields, permits=permits, writer=item["writer"]["S"].rpartition(".")[0])


def check_change(before: Stored, after: Stored, probe: tuple[str, str], not_before: float, now: float) -> None:
    """R5: the breaker changes by its rules only. Raises Violation.

    Args:
        probe: the delivery that began the present half-open state, and how its work ended.
        not_before: the earliest time of a probe after the failure that opened the breaker, or after a failed probe.
    """
    if after.writer.startswith("operator") or before.state == after.state == CLOSED:
        return
    by = f"by {after.writer}"
    if before.forced:
        if after.state != OPEN or not after.forced:
            raise Violation("R5", f"the breaker that an operator opened becomes {after.state} {by}")
    elif after.state == HALF_OPEN:
        if now < not_before:
            raise Violation("R5", f"a probe begins {not_before - now:.1f} s before it is due")
    elif after.state == CLOSED and (before.state, probe) != (HALF_OPEN, (after.writer, "succeeded")):
        raise Violation("R5", f"the breaker is closed {by}, and the probe {probe[0]} {probe[1] or 'has not ended'}")


def check_begin(asked: Asked | None, now_under_way: list[Work], mine: Work) -> None:
    """R5 and R6: the work that begins was permitted, and is not one too many. Raises Violation.

    Args:
        now_under_way: the other works that have not ended, and whose invocations have not.
    """
    if asked is None:
        raise Violation("R5", "work begins, and its delivery has not asked for the downstream")
    if asked.item.state == OPEN or (asked.item.state == HALF_OPEN and not asked.is_own):
        raise Violation("R5", f"work begins whose delivery has found the breaker {asked.item.state}")
    if asked.item.state == CLOSED and asked.hung:
        raise Violation("R5", "work begins after a call hung, and one failure opens the breaker")
    if mine.is_probe and any(work.is_probe for work in now_under_way):
        raise Violation("R5", "two probes are under way")
    if not mine.is_probe and mine.limit:
        works = [*now_under_way, mine]
        if len(works) > max(work.limit for work in works):
            raise Violation("R6", f"{len(works)} works are under way, and the limit was {mine.limit}")


def check_counted(body: str, allowed: int) -> None:
    """R3: an attempt begins only if fewer than the allowed attempts before it count. Raises Violation."""
    message = parse_message(body)
    counted = len(message.retries) - message.uncounted
    if counted >= allowed:
        raise Violation("R3", f"attempt {message.attempt} begins after {counted} that count, and {allowed} may")


@remembered
def check_dead_letter(dead: Record, attempts: int, excuses: int, *, is_old: bool) -> None:
    """R7: a request that a healthy downstream accepts is dead-lettered only for its age. Raises Violation.

    Args:
        attempts: how many may count.
        excuses: failures of the downstream or the request besides the outage.
        is_old: its maximum age has passed.
    """
    code, history = _text(dead, "code"), json.loads(_text(dead, "history") or "[]")
    request_id = parse_message(dead["body"]).request_id
    died = sum(entry["error"].startswith("Died") for entry in history)
    # The failure that begins an outage may count.
    if code == "AttemptsExhausted" and died + excuses < attempts - 1:
        raise Violation("R7", f"{request_id} is dead-lettered, and an outage has used up its attempts")
    if code == "TooOld" and not is_old:
        raise Violation("R7", f"{request_id} is dead-lettered before its maximum age")


def check_no_attempt_spent(request_id: str, row: Record) -> None:
    """R5: a message that is held back spends no attempt. Raises Violation."""
    if "last_error" in row and row["last_error"]["S"].startswith("NotPermitted"):
        raise Violation("R5", f"attempt {row['attempts']['N']} of {request_id} was spent without a call of the work")


def check_end(item: Stored, now: float) -> None:
    """R7: in the end the breaker is closed, kept open by an operator, or its next probe is due. Raises Violation."""
    if item.state != CLOSED and not item.forced and item.probe_at > now + INVOCATION + 2 * CLOCK_SKEW_SECONDS:
        raise Violation("R7", f"in the end the breaker is {item.state}, and no probe is due")


def _text(dead: Record, name: str) -> str:
    attribute = dead["attributes"].get(name)
    return str(attribute["StringValue"]) if attribute is not None else ""
