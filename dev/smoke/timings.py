"""How long things take, and how long they are waited for: on AWS, and on the embedded one. All in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """The numbers of a run.

    hold: a job that somebody waits behind lingers so long.
    long: a job that is stopped lingers so long; it is never waited for.
    task_timeout: the time-out of the Glue task in the check of it. Longer than Glue takes to begin a run.
    due: the schedule's time is so far ahead.
    start: longest time until a run is alive, or a message has reached a function.
    finish: longest time for whatever a workflow does once its run is over, the looks at Glue included.
    poll: between two reads.
    """

    hold: float
    long: float
    task_timeout: int
    due: float
    start: float
    finish: float
    poll: float


# A Python shell run takes some ten to sixty seconds to begin. Two looks of a workflow are up to 60 s apart by default.
AWS = Timings(hold=25, long=420, task_timeout=90, due=75, start=180, finish=300, poll=1.0)
EMBEDDED = Timings(hold=3, long=60, task_timeout=2, due=2, start=120, finish=180, poll=0.1)
