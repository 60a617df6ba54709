"""`python -m tests.simulation`: searches the small worlds exhaustively, and runs random schedules in larger ones.

Exit codes: 0 every guarantee holds; 1 one does not, and the history is printed; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from random import Random
from typing import Any, NamedTuple

os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "simulation")
os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "simulation")
os.environ.setdefault("POWERTOOLS_TRACE_DISABLED", "true")

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.simulation import exploring, scheduling, shrinking, small_worlds
from tests.simulation.frozen import forget
from tests.simulation.worlds import Violation

CHUNK = 100  # schedules that a process runs before it reports, times the world's share
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
    started, broken = time.monotonic(), ""
    explored, made = [], dict.fromkeys(worlds or sorted(small_worlds.RANDOM_WORLDS), Made())
    with ProcessPoolExecutor(jobs) as pool, Progress(console=console) as progress:
        try:
            bar = progress.add_task("random schedules", total=schedules)
            tasks = [pool.submit(_explore, name) for name in small_worlds.SMALL] if explore else []
            tasks += [pool.submit(_schedules, *chunk) for chunk in _chunks(list(made), schedules, seed)]
            for done in as_completed(tasks):
                name, result, broken = done.result()
                if isinstance(result, Made):
                    made[name] = Made(*map(sum, zip(made[name], result, strict=True)))
                    progress.advance(bar, result.schedules)
                else:
                    explored.append((name, *result))
                    progress.console.print(f"[dim]{name}:[/] {result[1]:,} states")
                if broken:
                    break
        finally:
            pool.shutdown(cancel_futures=True)
    small = Table("small world (exhaustive search)", "faults", "states", "steps", "CPU s", title_justify="left")
    for row in explored:
        small.add_row(*(f"{each:,}" if isinstance(each, int) else str(each) for each in row))
    drawn = Table("world", "random schedules", "steps", "faults", "CPU s")
    for name, of_world in made.items():
        drawn.add_row(name, *(f"{each:,}" for each in of_world[:3]), f"{of_world.seconds:.1f}")
    console.print(small, drawn)
    console.print(broken or f"every guarantee holds ({time.monotonic() - started:.0f} s)", markup=False)
    sys.exit(1 if broken else 0)


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


class Made(NamedTuple):
    """Random schedules of a world, and their CPU time."""

    schedules: int = 0
    steps: int = 0
    faults: int = 0
    seconds: float = 0.0


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


def _schedules(kind: str, first: int, number: int) -> tuple[str, Made, str]:
    """Run schedules: the world, their numbers, and the history if a guarantee breaks."""
    gc.disable()  # there is hardly any garbage, and collections take longer the larger the caches are
    started, steps, faults = time.process_time(), 0, 0
    for seed in range(first, first + number):
        random = Random(seed)
        world = small_worlds.RANDOM_WORLDS[kind](random)
        try:
            steps += scheduling.run(world, random)
        except Violation as violation:
            shrunk = _shrunk_schedule(kind, seed, violation)
            return kind, Made(seed - first), f"{violation}\n{shrunk}\n\nmake replay WORLD={kind} SEED={seed}"
        faults += world.faults
    small_worlds.forget_if_much()
    return kind, Made(number, steps, faults, time.process_time() - started), ""


def _shrunk_schedule(kind: str, seed: int, violation: Violation) -> str:
    draw = small_worlds.RANDOM_WORLDS[kind]
    choices, _violation = scheduling.path(draw, seed)
    return "\n".join(shrinking.shrunk_history(lambda: draw(Random(seed)), choices, violation.name))


def _explore(name: str) -> tuple[str, tuple[Any, ...], str]:
    """Search a world: its name, the columns of its row, and the history if a guarantee breaks."""
    forget()
    small = small_worlds.SMALL[name]
    started, broken = time.process_time(), ""
    explored = exploring.explore(small.make(), small.faults)
    row = (str(small.faults), explored.states, explored.steps, round(time.process_time() - started, 1))
    if explored.violation is not None:
        shrunk = "\n".join(shrinking.shrunk_history(small.make, explored.path, explored.violation.name))
        broken = f"{name}: {explored.violation}\n{shrunk}"
    forget()
    return name, row, broken


if __name__ == "__main__":
    main()
