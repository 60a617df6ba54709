"""examples/leases and the examples of docs/leases.md run unchanged, and its policy permits what they call."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType
from typing import Any

import boto3
import pytest

from dev.emulator.environment import ROOT
from slotkeeper import slots
from slotkeeper.slots import Processes, SlotLost, Slots, leases
from tests.http_servers import Listener
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.tables import create_table
from tests.unit.slots.lease_scene import LeaseScene
from tests.unit.work_messages import invocation

FOLDER = ROOT / "examples" / "leases"
PAGE = (ROOT / "docs" / "leases.md").read_text()


@pytest.fixture
def slot_table(monkeypatch: pytest.MonkeyPatch) -> Slots:
    """The table `slots`, with a licence for one caller."""
    leases._leases_of.cache_clear()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session())
    monkeypatch.setenv("SLOT_TABLE_NAME", "slots")
    AwsAccount().use()
    dynamodb = boto3.client("dynamodb")
    Processes(dynamodb, "slots").create("licence", 1, "none")
    return Slots(dynamodb, "slots")


def _held(slot_table: Slots, process: str = "licence") -> int:
    seen = slot_table.read(process)
    assert seen is not None
    return seen.slots_in_use


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_function_calls_the_api_in_a_slot_and_answers_503_without_one(
    slot_table: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone") as api:
        monkeypatch.setenv("API_URL", api.url)
        handler = _load("licensed_api").handler
        assert handler({"body": "x"}, invocation()) == {"statusCode": 200, "body": "done"}
        assert _held(slot_table) == 0
        slot_table.adopt("licence", "licence-other", 0.0, "job")
        refused = handler({"body": "x"}, invocation(1.0))  # no time for a wait
        assert refused["statusCode"] == 503
        assert "all slots are in use. Limit 1" in refused["body"]
        assert api.connections == 1


def test_the_container_extends_its_lease_for_each_file(slot_table: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    container, ran = _load("container"), []

    def run(command: list[str], *, check: bool, timeout: float) -> None:
        ran.append(command)
        assert check
        assert 0 < timeout <= 60
        assert _held(slot_table) == 1

    monkeypatch.setattr(container.subprocess, "run", run)
    container.main("program", "a", "b")
    assert ran == [["program", "a"], ["program", "b"]]
    assert _held(slot_table) == 0


def test_the_container_stops_if_its_lease_was_lost(slot_table: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    container, ran = _load("container"), []

    def run(command: list[str], **_: Any) -> None:
        ran.append(command)
        seen = slot_table.read("licence")
        assert seen is not None
        ((name, holder),) = seen.holders.items()
        slot_table.free("licence", name, holder.raw)

    monkeypatch.setattr(container.subprocess, "run", run)
    with pytest.raises(SlotLost):
        container.main("program", "a", "b")
    assert ran == [["program", "a"]]


def test_a_table_of_ones_own_needs_no_stack(slot_table: Slots, capsys: pytest.CaptureFixture[str]) -> None:
    dynamodb = boto3.client("dynamodb")
    create_table(dynamodb, "mine", "process_name")
    for _ in range(2):
        _load("own_table").main("mine")
    assert re.fullmatch(r"(working for at most \d+ s\n){2}", capsys.readouterr().out)
    assert _held(Slots(dynamodb, "mine")) == 0


def test_the_pages_examples_hold_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = LeaseScene()
    scene.aws.tables.put("slots", scene.item | {"process_name": {"S": "licence"}})
    monkeypatch.setattr(leases, "_leases_of", lambda *_: scene.leases)
    monkeypatch.setenv("SLOT_TABLE_NAME", "slots")
    held: list[int] = []

    def in_use() -> int:
        seen = scene.grants.read("licence")
        assert seen is not None
        return seen.slots_in_use

    def use(*_: object) -> None:
        held.append(in_use())

    context = scene.invocation(30)
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(example, {"context": context, "call_the_api": use, "work": range(2), "step": use, "slots": slots})
    assert (held, in_use()) == ([1, 1, 1], 0)


def test_the_pages_policy_grants_the_calls_of_a_lease_and_no_others() -> None:
    scene = LeaseScene(target="job")
    with scene.leases.lease("p", seconds=60) as lease:
        lease.extend(70)
    scene.expired()
    with scene.leases.lease("p", seconds=60):
        made = set(scene.aws.made)
        scene.queue("a")
        scene.aws.made.clear()
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    granted = {action.partition(":")[2] for each in json.loads(policy)["Statement"] for action in each["Action"]}
    assert made | set(scene.aws.made) == granted


def test_the_pages_policy_permits_the_items_of_named_processes_alone() -> None:
    """Without the condition, a caller of leases could change every process."""
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (of_table,) = (each for each in json.loads(policy)["Statement"] if "dynamodb:GetItem" in each["Action"])
    assert of_table["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["licence"]}}
