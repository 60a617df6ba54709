"""Durations and longest waits of a run, on AWS and on the embedded AWS. All in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """Seconds for each part of a run.

    hold: how long a job runs while another request waits for its slot.
    long: how long a job would run that the check stops.
    task_timeout: the Glue task's timeout in the check of it; longer than Glue takes to start a run.
    due: from now to the schedule's time.
    start: longest wait until a run is alive, or a message has reached a function.
    finish: longest wait for the workflow after its run has ended, with its checks of Glue.
    poll: between two reads.
    new_role: from the creation of a role to its first use.
    """

    hold: float
    long: float
    task_timeout: int
    due: float
    start: float
    finish: float
    poll: float
    new_role: float = 0


# A Python shell run takes about ten to sixty seconds to start. A workflow's checks are up to 60 s apart by default.
AWS = Timings(hold=25, long=420, task_timeout=90, due=75, start=180, finish=300, poll=1.0, new_role=20)
EMBEDDED = Timings(hold=3, long=60, task_timeout=2, due=2, start=120, finish=180, poll=0.1)
