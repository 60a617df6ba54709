"""examples/leases run unchanged, and each has fewer than ten lines of code."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dev.emulator.environment import ROOT
from slotkeeper.slots import Processes, SlotLost, Slots, leases
from slotkeeper.slots.protocol import Candidate
from tests.support.tables import create_table
from tests.unit.http_servers import Listener

FOLDER = ROOT / "examples" / "leases"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


@dataclass
class Invocation:
    """Lambda's context object."""

    seconds: float = 30.0

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture
def slot_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slots]:
    """The table `slots`, with a licence for one caller."""
    leases._leases_of.cache_clear()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session())
    monkeypatch.setenv("SLOT_TABLE_NAME", "slots")
    with mock_aws():
        dynamodb = boto3.client("dynamodb")
        create_table(dynamodb, "slots", "process_name")
        Processes(dynamodb, "slots").create("licence", 1, "none")
        yield Slots(dynamodb, "slots")


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


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_fewer_than_ten_lines_of_code(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    code = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert 0 < sum(len(ast.unparse(node).splitlines()) for node in code) < 10


def test_the_function_calls_the_api_in_a_slot_and_answers_503_without_one(
    slot_table: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone") as api:
        monkeypatch.setenv("API_URL", api.url)
        handler = _load("licensed_api").handler
        assert handler({"body": "x"}, Invocation()) == {"statusCode": 200, "body": "done"}
        assert _held(slot_table) == 0
        slot_table.reserve(Candidate("licence", "licence-other"), 0.0)
        refused = handler({"body": "x"}, Invocation(seconds=1.0))  # no time for a wait
        assert refused["statusCode"] == 503
        assert "all slots are in use. Limit 1" in refused["body"]
        assert api.connections == 1


def test_the_container_extends_its_lease_for_each_file(slot_table: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    container, ran = _load("container"), []

    def run(command: list[str], *, check: bool, timeout: float) -> None:
        ran.append(command)
        assert check
        assert 50 < timeout <= 60
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
        slot_table.release("licence", name, holder.raw)

    monkeypatch.setattr(container.subprocess, "run", run)
    with pytest.raises(SlotLost):
        container.main("program", "a", "b")
    assert ran == [["program", "a"]]


def test_a_table_of_ones_own_needs_no_stack(slot_table: Slots, capsys: pytest.CaptureFixture[str]) -> None:
    dynamodb = boto3.client("dynamodb")
    create_table(dynamodb, "mine", "process_name")
    for _ in range(2):
        _load("own_table").main("mine")
    assert capsys.readouterr().out == "working for at most 60 s\n" * 2
    assert _held(Slots(dynamodb, "mine")) == 0
