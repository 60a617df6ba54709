"""Plans who starts next, and reads as much of the queue for that as the plan needs.

Without keys this is the queue's head. With keys a read begins behind the key whose turn was last, and the next one
behind each key that is passed, so that the number of reads depends on the keys that are visited and not on how many
requests they have.
"""

from __future__ import annotations

from collections.abc import Callable

from slotkeeper.slots.plan import MAX_STARTS, Plan, Unread, plan
from slotkeeper.slots.process import Process
from slotkeeper.slots.queued import QUEUE_END, Part, Parts, before_key, behind_key, behind_rank, rank_of

# Reads of one plan: some 300,000 blocked requests in front of one that fits, or 100 keys that are at their limit.
MAX_READS = 100
# Requests of a read. As a rule they are 4 KB together, the unit by which a read is paid (DynamoDB guide, "Read
# capacity units").
FIRST_READ = 16

# Reads the part of a queue between two places: at most a number of requests, or None for 1 MB.
Read = Callable[[str, str, int | None], Part]


def plan_queue(
    read: Read,
    process: Process,
    now: float,
    *,
    age: float,
    most: int = MAX_STARTS,
    passed: tuple[str, str] | None = None,
) -> tuple[Plan, Parts]:
    """Plan with a queue of which as much is read as must be, and at most MAX_READS parts.

    Args:
        now, age, most: as of `plan`.
        passed: two places between which nothing can start (`passed_by`).
    """
    parts = Parts(_parts(passed) if passed else [])
    reserved = sum(holder.state == "RESERVED" for holder in process.holders.values())
    number = reserved + max(FIRST_READ, 1 + min(most, process.room))
    unread, ends = Unread(parts.unread("", QUEUE_END) or "", QUEUE_END), set[str]()
    for _ in range(MAX_READS):
        # A read that continues another one: many that cannot start are in front of one that perhaps can.
        part = read(unread.after, unread.until, None if unread.after in ends else number)
        ends.add(part.until)
        parts.add(part)
        planned = plan(process, parts.requests, now, age=age, most=most, parts=parts)
        if planned.unread is None:
            break
        unread = planned.unread
    return planned, parts


def passed_by(planned: Plan) -> tuple[str, str] | None:
    """The two places between which a plan has found nothing that can start, if it needs more reads."""
    if planned.unread is None:
        return None
    after, until = planned.unread.after, planned.unread.until
    if until == QUEUE_END:  # all of the higher priorities
        return "", after
    rank = rank_of(after)
    return behind_key(rank, planned.after_keys.get(rank, "")), after


def _parts(passed: tuple[str, str]) -> list[Part]:
    after, until = passed
    if not after:
        return [Part((), "", until)]
    rank = rank_of(until)
    begin, end = before_key(rank, ""), behind_rank(rank)
    around = [(after, until)] if after <= until else [(after, end), (begin, until)]
    return [Part((), "", begin), *(Part((), *each) for each in around)]
