"""A janitor run ends in time although one process has very many dead holders, and another process has its turn.

The worlds' calls take no time. Here each call takes a quarter of a second, and one janitor run follows the other.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.slots import dead_holders, janitor
from slotkeeper.slots.intake import accept
from slotkeeper.slots.janitor import RUN_SECONDS
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_table import RequestTable
from tests.simulation.aws import dynamodb, stepfunctions
from tests.simulation.frozen import freeze
from tests.simulation.slots_actors import BELLS, ROWS, SLOTS, run_janitor
from tests.simulation.slots_state import CHECK_GAP, GRACE, JOB, PERIOD, PROCESS, SECOND, Plan, process_of
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.transcript import Outside, Question

CALL_SECONDS = 0.25
DEAD, UNHELD = 150, 150  # holders whose workflow has died, and executions whose slot an operator has freed
OTHER = execution_name(SECOND, "B", 1)  # the dead holder of the second process, behind which request "A" waits


class _SlowCalls(Outside):
    """The services of a world, with calls that take time."""

    def __init__(self, world: SlotsWorld) -> None:
        super().__init__(())
        self._world = world

    def clock(self) -> float:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.now += seconds

    def ask(self, question: Question) -> Any:
        self._world.now += CALL_SECONDS
        return Outside((self._world.perform(question),)).ask(question)


def _loaded() -> SlotsWorld:
    """Two processes whose holders' workflows were aborted. The doorbell of the second one's request was lost."""
    world = SlotsWorld(Plan(()))
    dead = [execution_name(PROCESS, str(number), 1) for number in range(DEAD)]
    unheld = [execution_name(PROCESS, f"unheld {number}", 1) for number in range(UNHELD)]
    world.services["dynamodb"] = dynamodb.tables(
        slots=[_item(PROCESS, dead), _item(SECOND, [OTHER])], requests=map(_row, (*dead, OTHER, *unheld))
    )
    rows = RequestTable(_SlowCalls(world).client("dynamodb"), ROWS, SLOTS)
    accept(rows, Request(SECOND, {}, "A"), "m1", world.now, "1", world.now)
    executions = world.services["stepfunctions"]
    for name in (*dead, OTHER, *unheld):
        given = {"stateMachineArn": stepfunctions.WORKFLOW, "name": name, "input": "{}"}
        executions, _answer = stepfunctions.perform(executions, "start_execution", freeze(given), world.now)
        executions = stepfunctions.close(executions, name, "ABORTED", world.now)
    world.services["stepfunctions"] = executions
    world.now += GRACE
    world._note_published = lambda _: None  # type: ignore[method-assign]  # its checks need those after each step
    return world


def _item(process: str, holders: list[str]) -> dict[str, Any]:
    holder = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1000000"}, "job": {"S": JOB}}}
    return {
        "process_name": {"S": process},
        "slot_limit": {"N": str(len(holders))},
        "slots_in_use": {"N": str(len(holders))},
        "holders": {"M": dict.fromkeys(holders, holder)},
        "grants": {"N": "1"},
        "target": {"S": JOB},
    }


def _row(execution: str) -> dict[str, Any]:
    texts = {"process_name": process_of(execution), "execution": execution, "state": "STARTED", "request_id": execution}
    texts |= {"priority": "normal", "placed": "1#1#1", "body": "{}"}
    numbers = {name: {"N": "1000000"} for name in ("sent", "started", "open", "attempt")}
    return {name: {"S": text} for name, text in texts.items()} | numbers


def _run(world: SlotsWorld, runs: int) -> list[float]:
    """Janitor runs, a period apart; how long each took."""
    seconds = []
    for _ in range(runs):
        begun = world.now
        run_janitor(_SlowCalls(world), GRACE, CHECK_GAP)
        seconds.append(world.now - begun)
        world.now = max(world.now, begun + PERIOD)
    return seconds


def _rings(world: SlotsWorld) -> bool:
    return any(json.loads(bell["body"])["process"] == SECOND for bell in world.messages(BELLS))


def _ended(world: SlotsWorld) -> set[str]:
    return {name for name, row in world._rows().items() if row["state"]["S"] == "FAILED"}


def test_another_process_has_its_turn_in_the_first_runs_and_each_end_is_published() -> None:
    world = _loaded()
    assert max(_run(world, 2)) <= RUN_SECONDS + 5
    assert _rings(world)
    assert OTHER in _ended(world)
    assert OTHER not in world._holders()
    assert world._holders()  # there is more to do than two runs can
    assert max(_run(world, 40)) <= RUN_SECONDS + 5
    assert not world._holders()
    assert len(_ended(world)) == DEAD + UNHELD + 1
    assert not world._unpublished()


def test_without_turns_another_process_waits_for_all_requests_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "in_turns", lambda work, _: sorted(work, key=lambda each: each.name == OTHER))
    monkeypatch.setattr(dead_holders, "in_turns", lambda work, _: list(work))
    world = _loaded()
    _run(world, 2)
    assert OTHER not in _ended(world)


def test_without_its_end_a_run_takes_longer_than_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "RUN_SECONDS", 10**6)
    assert _run(_loaded(), 2)[1] > 2 * PERIOD
