"""Cold starts of every function next to its bare handler, in rounds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from dev.benchmarks.cold_start import bare
from dev.benchmarks.cold_start.artifacts import Artifacts, Size, build
from dev.benchmarks.cold_start.function_calls import Calls, deployed
from dev.benchmarks.cold_start.start import Start, start
from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.scenarios.runner.scenario import CannotContinue
from dev.tools.invoke.function_stack import folders
from dev.tools.invoke.lambda_runtime import Configuration, FunctionFailed, RuntimeUnavailable

TITLE = "Cold start of each function next to a handler that creates the same clients"
MINUTES = 1.5
AIM = 1.25  # x the bare handler
ROUNDS = 10
SMALL = ("starter",)


@dataclass
class Measured:
    """The starts of a function and of its bare handler, by round."""

    services: Sequence[str]
    ours: list[Start] = field(default_factory=list)
    bare: list[Start] = field(default_factory=list)

    def ratio(self, figure: str) -> tuple[float, float, float]:
        """Median, minimum and maximum of the rounds' ratios."""
        pairs = zip(self.ours, self.bare, strict=True)
        ratios = [getattr(ours, figure) / getattr(plain, figure) for ours, plain in pairs]
        return median(ratios), min(ratios), max(ratios)


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises DeploymentError, EngineError, CannotContinue."""
    with tempfile.TemporaryDirectory() as built:  # 30 MB, not kept
        notify("build", 0.0)
        artifacts = build(Path(built))
        try:
            # Absolute, since processes in other folders use it.
            measured = _measure(artifacts, folder.resolve(), notify, small=small)
        except (RuntimeUnavailable, FunctionFailed, bare.Unusable) as error:
            raise CannotContinue(str(error)) from error
        sizes = artifacts.sizes()
    return Outcome(
        grids=[_starts(measured), _calls(measured), _sizes(sizes)],
        goals=[goal(name, one) for name, one in measured.items()],
        figures={
            "functions": {name: asdict(one) for name, one in measured.items()},
            "sizes": {name: asdict(size) for name, size in sizes.items()},
        },
        notes=NOTES,
    )


def _measure(artifacts: Artifacts, folder: Path, notify: Notify, *, small: bool) -> dict[str, Measured]:
    notify("deploy a stack for each function", 0.05)
    with deployed(folder / "aws", SMALL if small else folders()) as (aws, functions):
        subjects = {name: _Subject(artifacts, calls, aws.endpoint, folder / name) for name, calls in functions.items()}
        rounds = 1 if small else ROUNDS
        for number in range(rounds):
            for at, (name, subject) in enumerate(subjects.items()):
                notify(f"start {name}", 0.1 + 0.9 * (number + at / len(subjects)) / rounds)
                if number == 0 and not small:
                    subject.start()  # not counted: it loads the files into the page cache
                subject.start(into=subject.measured, bare_first=number % 2 == 1)
    return {name: subject.measured for name, subject in subjects.items()}


class _Subject:
    """A function and its bare handler."""

    def __init__(self, artifacts: Artifacts, calls: Calls, endpoint: str, scratch: Path) -> None:
        scratch.mkdir()
        self._calls = calls
        self._endpoint = endpoint
        self._scratch = scratch
        self._path = artifacts.path
        self._bare_path = artifacts.bare_path
        self._ours = replace(calls.configuration, folder=artifacts.function(calls.name))
        self._environment = dict(self._ours.environment) | {"LAMBDA_TASK_ROOT": str(self._ours.folder)}
        made = bare.clients((self._ours.folder, *self._path), self._environment)
        self._bare = self._written("bare", bare.handler(made))
        self.measured = Measured([client.service for client in made])

    def _written(self, name: str, source: str) -> Configuration:
        folder = self._scratch / name
        folder.mkdir()
        (folder / "app.py").write_text(source, encoding="utf-8")
        return replace(self._ours, folder=folder)

    def start(self, into: Measured | None = None, *, bare_first: bool = False) -> None:
        """Start each once."""
        events = [self._calls.event(), self._calls.event()]
        plain = self._start_bare(self._bare) if bare_first else None
        ours = start(self._ours, self._path, self._endpoint, events, self._scratch)
        plain = plain or self._start_bare(self._bare)
        if into:
            into.ours.append(ours)
            into.bare.append(plain)

    def _start_bare(self, function: Configuration) -> Start:
        return start(function, self._bare_path, self._endpoint, [{}, {}], self._scratch)


def goal(name: str, one: Measured) -> Goal:
    clock, cpu = one.ratio("init")[0], one.ratio("init_cpu")[0]
    return Goal(
        f"{name}: init phase at most {AIM} x the bare handler's, in processor time",
        f"{cpu:.2f} x (by the clock {clock:.2f} x)",
        cpu <= AIM,
    )


def _starts(measured: Mapping[str, Measured]) -> Grid:
    rows = []
    for name, one in measured.items():
        wall, cpu = one.ratio("init"), one.ratio("init_cpu")
        rows.append([
            name,
            ", ".join(one.services),
            _ms(median(each.init for each in one.ours)),
            _ms(median(each.init for each in one.bare)),
            f"{wall[0]:.2f} ({wall[1]:.2f} to {wall[2]:.2f})",
            _ms(median(each.init_cpu for each in one.ours)),
            _ms(median(each.init_cpu for each in one.bare)),
            f"{cpu[0]:.2f} ({cpu[1]:.2f} to {cpu[2]:.2f})",
        ])  # fmt: skip
    return Grid(
        "Init phase, ms",
        ["function", "clients", "ours", "bare", "ratio", "ours, CPU", "bare, CPU", "ratio of CPU"],
        rows,
        "Medians of the rounds; ratios: the median of the rounds' ratios, and their range.",
        words=2,
    )


def _calls(measured: Mapping[str, Measured]) -> Grid:
    rows = []
    for name, one in measured.items():
        first, second = (median(each.calls[number] for each in one.ours) for number in (0, 1))
        rows.append([name, _ms(first), _ms(second), _ms(median(each.calls[0] for each in one.bare))])
    return Grid(
        "First calls after the init phase, ms",
        ["function", "first call", "second call", "bare handler's first"],
        rows,
        "A frequent event for each, on the embedded AWS; the bare handler makes no calls. The first call includes "
        "connections and deferred initialization.",
    )


def _sizes(sizes: Mapping[str, Size]) -> Grid:
    rows = [
        [name, f"{s.zipped / 1000:.1f}", f"{s.unzipped / 1000:.1f}", f"{s.compiled / 1000:.1f}"]
        for name, s in sizes.items()
    ]
    return Grid("Code of a container, kB", ["", "zipped", "unzipped", "compiled part"], rows)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.0995 else f"{1000 * seconds:.1f}"


NOTES = (
    "Both run in AWS's runtime client under AWS's emulator, from the output of sam build, without other packages of "
    "this environment. The init phase lasts from the start of the process until it requests its first invocation, so "
    "both include the start of Python and of the runtime client.",
    "The goal is in processor time, since a function of 512 MB has a part of a processor. The clock includes other "
    "programs on this machine, and the start of the emulator's child process.",
    "boto3 and botocore are this environment's, compiled, for both. Lambda's own may be of another version.",
    "A function's clients are recorded while it is imported. The bare handler has no logger, metrics, traces and "
    "settings, and Python's garbage collection is enabled while it starts (slotkeeper/cold_start.py).",
    "Not included, since only Lambda does it: placing the container and unpacking the layer.",
)
