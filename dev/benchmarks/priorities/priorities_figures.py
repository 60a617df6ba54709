"""Figures of a run: waits and hand-offs of each request, and the use of the limit. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from .slot_world import Course, Job


def hand_offs(jobs: Sequence[Job], course: Course, limit: int) -> list[int]:
    """For each job of one process: which hand-off it got, counted from the next release after which it would fit.

    1: it was the first to start after that release, or found a free slot.
    """
    starts = sorted(course.started.values())
    counts = []
    for number, job in enumerate(jobs):
        started = course.started[number]
        releases = (
            at for at, _, in_use in course.releases if job.sent <= at <= started and in_use + job.weight <= limit
        )
        released = next(releases, None)
        counts.append(1 if released is None else bisect_right(starts, started) - bisect_right(starts, released))
    return counts


def backlog(jobs: Sequence[Job], classes: Sequence[str], course: Course, limit: int) -> dict[str, Any]:
    """Waits in seconds and hand-offs of each class; how much of the limit was used until the last job has ended.

    Args:
        classes: the priority of each job in the design with priorities, so that both designs have the same classes.
    """
    counted = hand_offs(jobs, course, limit)
    of_class: dict[str, list[int]] = {}
    for number, name in enumerate(classes):
        of_class.setdefault(name, []).append(number)
    return {
        "waits": {
            name: [round(course.started[number] - jobs[number].sent, 3) for number in numbers]
            for name, numbers in of_class.items()
        },
        "hand_offs": {name: [counted[number] for number in numbers] for name, numbers in of_class.items()},
        "receives": course.receives / len(jobs),
        **usage([job.weight for job in jobs], course, limit),
    }


def out_of_order(jobs: Sequence[Job], course: Course) -> dict[str, float]:
    """The share of all starts that are of lower requests while one of high priority waits, and the last high start.

    The requests that are sent first make the process full, and do not count.
    """
    waits = [(job.sent, course.started[number]) for number, job in enumerate(jobs) if job.priority == "high"]
    lower = [course.started[number] for number, job in enumerate(jobs) if job.priority != "high" and job.sent > 0]
    early = sum(any(sent < started < until for sent, until in waits) for started in lower)
    return {"out_of_order": early / (len(lower) + len(waits)), "last_urgent": max(until for _, until in waits)}


def usage(weights: Sequence[int], course: Course, limit: int) -> dict[str, float]:
    """The share of the limit that jobs have used, and the second at which the last has ended."""
    makespan = max(course.ended.values())
    used = sum(weight * (course.ended[number] - course.started[number]) for number, weight in enumerate(weights))
    return {"used": used / limit / makespan, "makespan": makespan}
