"""The traces: random requests, the same for each design of a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES, Priority

from .slot_world import Job

PROCESS = "orders"
# As many requests at second 0. Urgent ones follow, each so long after the one before that none is in front of it: in
# the shortest gap ten jobs of a mean of 60 s release ten slots.
NORMAL, LOW = 300, 700
JOB_SECONDS = (30.0, 90.0)
URGENT_GAP = (60.0, 120.0)  # seconds
SLOTS = 10
WEIGHTS, URGENT_WEIGHTS, WEIGHED_LIMIT = (1, 4), (1, 6), 25  # about ten jobs at the same time too

# The limit in DPUs, and jobs of two weights.
DPUS, HEAVY, LIGHT = 60, 10, 2
DPU_JOB_SECONDS = (120.0, 600.0)
WAVE_SECONDS = 1200.0

BURST_SLOTS, BURST = 50, 200  # the slots that become free together, and the waiting requests of each priority
MIX = {"high": 1, "normal": 5, "low": 4}  # shares of a steady load
LOAD = 0.9  # of the slots


@dataclass(frozen=True)
class Trace:
    """Requests of one process and its limit."""

    name: str
    limit: int
    jobs: tuple[Job, ...]

    def without_priorities(self) -> Trace:
        return replace(self, jobs=tuple(replace(job, priority=DEFAULT_PRIORITY) for job in self.jobs))

    def in_halves(self) -> tuple[dict[str, int], tuple[Job, ...]]:
        """Two processes without weights, for heavy and light jobs, each with the slots for half of the limit."""
        limits = {f"{PROCESS}-{weight}": self.limit // 2 // weight for weight in (HEAVY, LIGHT)}
        return limits, tuple(replace(job, process=f"{PROCESS}-{job.weight}", weight=1) for job in self.jobs)


def backlogs(seed: int, scale: float = 1.0) -> list[Trace]:
    """A backlog with urgent requests in between, without weights and with them. `scale`: of all numbers."""
    traces = []
    for name, limit, weights, urgent_weights in (
        ("weight 1", SLOTS, (1, 1), (1, 1)),
        ("weights", WEIGHED_LIMIT, WEIGHTS, URGENT_WEIGHTS),
    ):
        random = Random(seed)

        def job(sent: float, priority: Priority, bounds: tuple[int, int], random: Random = random) -> Job:
            return Job(PROCESS, sent, random.uniform(*JOB_SECONDS), priority, random.randint(*bounds))

        jobs = [job(0.0, "normal", weights) for _ in range(int(NORMAL * scale))]
        jobs += [job(0.0, "low", weights) for _ in range(int(LOW * scale))]
        random.shuffle(jobs)
        # While at least a tenth of the backlog still waits.
        end = 0.9 * len(jobs) * sum(JOB_SECONDS) / 2 / SLOTS
        at = random.uniform(*URGENT_GAP)
        while at < end:
            jobs.append(job(at, "high", urgent_weights))
            at += random.uniform(*URGENT_GAP)
        traces.append(Trace(name, limit, tuple(jobs)))
    return traces


def bursts(seed: int, scale: float = 1.0) -> list[Trace]:
    """Many slots become free together, with urgent and low requests waiting. `scale`: of all numbers."""
    slots = int(BURST_SLOTS * scale)
    traces = []
    for name, bounds in (("jobs of 60 s", (60.0, 60.0)), ("jobs of 30 to 90 s", JOB_SECONDS)):
        random = Random(seed)
        jobs = [Job(PROCESS, 0.0, 60.0, weight=slots)]
        for _ in range(int(BURST * scale)):
            jobs += [Job(PROCESS, 1.0, random.uniform(*bounds), priority) for priority in ("high", "low")]
        traces.append(Trace(f"{slots} slots together, {name}", slots, tuple(jobs)))
    return traces


def loads(seed: int, scale: float = 1.0) -> list[Trace]:
    """A steady load of all priorities: what turns cost. `scale`: of the number of requests."""
    traces = []
    for slots, seconds in ((10, 60.0), (5, 10.0), (3, 1.0)):
        random, sent, jobs = Random(seed), 0.0, list[Job]()
        for _ in range(int(1500 * scale)):
            sent += random.expovariate(LOAD * slots / seconds)
            (priority,) = random.choices(PRIORITIES, [MIX[each] for each in PRIORITIES])
            jobs.append(Job(PROCESS, sent, random.uniform(0.5, 1.5) * seconds, priority))
        traces.append(Trace(f"{slots} slots, jobs of {seconds:g} s", slots, tuple(jobs)))
    return traces


def mixes(seed: int, scale: float = 1.0) -> list[Trace]:
    """Heavy and light jobs, with different shares of the work. `scale`: of all numbers."""
    random = Random(seed)

    def work(heavy: int, light: int, sent: float = 0.0) -> list[Job]:
        weights = [HEAVY] * int(heavy * scale) + [LIGHT] * int(light * scale)
        random.shuffle(weights)
        return [Job(PROCESS, sent, random.uniform(*DPU_JOB_SECONDS), weight=weight) for weight in weights]

    waves = [work(*((20, 20) if wave % 2 == 0 else (4, 100)), wave * WAVE_SECONDS * scale) for wave in range(6)]
    made = {
        "half of the work heavy": work(60, 300),
        "three quarters heavy": work(90, 150),
        "three quarters light": work(30, 450),
        "mostly heavy and mostly light, in turns": [job for wave in waves for job in wave],
    }
    return [Trace(name, DPUS, tuple(jobs)) for name, jobs in made.items()]
