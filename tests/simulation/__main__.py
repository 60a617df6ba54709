"""`python -m tests.simulation`: searches the small worlds exhaustively, and runs random schedules in larger ones.

Exit codes: 0 every guarantee holds; 1 one does not, and the history is printed; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from random import Random
from typing import Any

os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "simulation")
os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "simulation")
os.environ.setdefault("POWERTOOLS_TRACE_DISABLED", "true")

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dev.emulator.environment import ROOT
from tests.simulation import exploring, scheduling, shrinking, small_worlds
from tests.simulation.worlds import Violation

CHUNK = 100  # schedules that a process runs before it reports, times the world's share
REPORT = ROOT / "build" / "simulation" / "report.json"
PIPE_WIDTH = 130  # characters: a pipe has no width, and in 80 columns the tables' lines would break


@click.group()
def main() -> None:
    """Run the real code on a simulated AWS, in every order of events and with every fault."""


@main.command()
@click.option(
    "--schedules", type=click.IntRange(0), default=1_000_000, show_default=True, help="Number of random schedules."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the first.")
@click.option(
    "--world", "worlds", multiple=True, type=click.Choice(sorted(small_worlds.RANDOM_WORLDS)), help="Only this world."
)
@click.option("--explore/--no-explore", default=True, help="Also search the small worlds.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Parallel processes.")
def run(schedules: int, seed: int, worlds: tuple[str, ...], explore: bool, jobs: int) -> None:
    """Search the small worlds, and run random schedules."""
    console = Console(emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    started = time.monotonic()
    kinds = list(worlds) or sorted(small_worlds.RANDOM_WORLDS)
    tally = Tally()
    with ProcessPoolExecutor(jobs, max_tasks_per_child=None) as pool, Progress(console=console) as progress:
        try:
            small = {pool.submit(_explore, name): name for name in small_worlds.SMALL} if explore else {}
            bar = progress.add_task("random schedules", total=schedules)
            waiting = _chunks(kinds, schedules, seed)
            under_way: set[Future[Any]] = set(small)
            under_way |= {pool.submit(_schedules, *chunk) for chunk in _some(waiting, 2 * jobs)}
            while under_way and not tally.broken:
                done = next(as_completed(under_way))
                under_way.remove(done)
                if done in small:
                    name = small[done]
                    tally.explored[name] = done.result()
                    progress.console.print(f"[dim]{name}:[/] {tally.explored[name]['states']:,} states")
                    tally.note_if_broken(tally.explored[name])
                else:
                    result = done.result()
                    tally.add(result)
                    progress.advance(bar, result["schedules"])
                    under_way |= {pool.submit(_schedules, *chunk) for chunk in _some(waiting, 1)}
        finally:
            pool.shutdown(cancel_futures=True)
    _report(console, tally, time.monotonic() - started)
    sys.exit(1 if tally.broken else 0)


@main.command()
@click.argument("world", type=click.Choice(sorted(small_worlds.RANDOM_WORLDS)))
@click.argument("seed", type=click.IntRange(0))
def replay(world: str, seed: int) -> None:
    """Run one schedule again, and print its history. If a guarantee breaks, print a shorter history, too."""
    draw = small_worlds.RANDOM_WORLDS[world]
    choices, violation = scheduling.path(draw, seed)
    click.echo("\n".join(shrinking.history(draw(Random(seed)), choices)))
    if violation is not None:
        click.echo(f"\n{_shrunk_schedule(world, seed, violation)}")
        sys.exit(1)
    click.echo("\nevery guarantee holds")


@dataclass
class Tally:
    explored: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: dict[str, dict[str, float]] = field(default_factory=dict)
    broken: str = ""

    def add(self, result: dict[str, Any]) -> None:
        made = self.made.setdefault(result["world"], {"schedules": 0, "steps": 0, "faults": 0, "seconds": 0.0})
        for name in made:
            made[name] += result[name]
        self.note_if_broken(result)

    def note_if_broken(self, result: dict[str, Any]) -> None:
        self.broken = self.broken or result.get("broken", "")


def _chunks(kinds: list[str], schedules: int, seed: int) -> Iterator[tuple[str, int, int]]:
    """(world, first seed, number of schedules): the worlds in turn, each up to its share."""
    all_shares = sum(small_worlds.SHARES[kind] for kind in kinds)
    first = dict.fromkeys(kinds, seed)
    left = {kind: -(-schedules * small_worlds.SHARES[kind] // all_shares) for kind in kinds}
    while any(left.values()):
        for kind in kinds:
            number = min(left[kind], CHUNK * small_worlds.SHARES[kind])
            if number:
                yield kind, first[kind], number
            first[kind] += number
            left[kind] -= number


def _some(chunks: Iterator[tuple[str, int, int]], number: int) -> Iterator[tuple[str, int, int]]:
    for _ in range(number):
        chunk = next(chunks, None)
        if chunk is not None:
            yield chunk


def _schedules(kind: str, first: int, number: int) -> dict[str, Any]:
    gc.disable()  # there is hardly any garbage, and collections take longer the larger the caches are
    started = time.process_time()
    result = {"world": kind, "schedules": 0, "steps": 0, "faults": 0, "broken": ""}
    for seed in range(first, first + number):
        random = Random(seed)
        world = small_worlds.RANDOM_WORLDS[kind](random)
        try:
            result["steps"] += scheduling.run(world, random)
        except Violation as violation:
            shrunk = _shrunk_schedule(kind, seed, violation)
            result["broken"] = f"{violation}\n{shrunk}\n\nmake replay WORLD={kind} SEED={seed}"
            break
        result["schedules"] += 1
        result["faults"] += world.faults
    small_worlds.forget_if_much()
    result["seconds"] = time.process_time() - started
    return result


def _shrunk_schedule(kind: str, seed: int, violation: Violation) -> str:
    draw = small_worlds.RANDOM_WORLDS[kind]
    choices, _violation = scheduling.path(draw, seed)
    return "\n".join(shrinking.shrunk_history(lambda: draw(Random(seed)), choices, violation.name))


def _explore(name: str) -> dict[str, Any]:
    small_worlds.forget()
    small = small_worlds.SMALL[name]
    started = time.process_time()
    explored = exploring.explore(small.make(), small.faults)
    result = {"states": explored.states, "steps": explored.steps, "ends": explored.ends, "broken": ""}
    result["seconds"] = round(time.process_time() - started, 1)
    if explored.violation is not None:
        shrunk = "\n".join(shrinking.shrunk_history(small.make, explored.path, explored.violation.name))
        result["broken"] = f"{name}: {explored.violation}\n{shrunk}"
    small_worlds.forget()
    return result


def _report(console: Console, tally: Tally, seconds: float) -> None:
    small = Table("small world (exhaustive search)", "faults", "states", "steps", "CPU s", title_justify="left")
    for name, explored in tally.explored.items():
        faults = str(small_worlds.SMALL[name].faults)
        small.add_row(name, faults, f"{explored['states']:,}", f"{explored['steps']:,}", str(explored["seconds"]))
    drawn = Table("world", "random schedules", "steps", "faults", "CPU s")
    for name, made in sorted(tally.made.items()):
        drawn.add_row(name, *(f"{made[part]:,}" for part in ("schedules", "steps", "faults")), f"{made['seconds']:.1f}")
    console.print(small, drawn)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"seconds": round(seconds), "small": tally.explored, "random": tally.made}, indent=1))
    if tally.broken:
        console.print(tally.broken, markup=False)
    else:
        console.print(f"[green]every guarantee holds[/] ({seconds:.0f} s; {REPORT.relative_to(ROOT)})")


if __name__ == "__main__":
    main()
