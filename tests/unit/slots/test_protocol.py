"""The steps of janitor, operators and workflow on a process's item."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.grants import GrantRefused
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.process import MAX_SLOT_LIMIT, Holder
from slotkeeper.slots.processes import MAX_KEY_LIMITS, Operations
from slotkeeper.slots.rate import Rate
from tests.simulation.account.boundary import before_write, passed_values, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, leased, reserved, running
from tests.workflow.definition import states
from tests.workflow.interpreter import evaluate

REFUSED = "ConditionalCheckFailedException"


class ProtocolScene(QueueScene):
    """The process `p` with a limit of 5, and the steps."""

    def __init__(self) -> None:
        super().__init__(limit=5)
        self.operations = Operations(self.processes, self.doorbell)

    def seen(self, name: str) -> Holder:
        return self.process.holders[name]

    def do(self, state: str, execution: str) -> str:
        """Make a state's call, as an execution of this name; return the error code of its refusal, or an empty text."""
        known = {"context": {"Execution": {"Name": execution, "Input": {"process": "p"}}}}
        arguments = evaluate(states()[state]["Arguments"], known)
        try:
            self.dynamodb.update_item(**arguments | {"TableName": "slots"})
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""


@pytest.fixture
def scene() -> ProtocolScene:
    return ProtocolScene()


# The janitor's steps


@pytest.mark.parametrize("holder", [reserved(), running(), reserved(weight=3), running(weight=3)])
def test_a_slot_that_is_freed_frees_its_weight_and_outdates_plans(holder: Any, scene: ProtocolScene) -> None:
    """Its request may still be in the queue that a dispatch has read."""
    scene.hold({"p-other": running(), "p-1": holder})
    seen = scene.process
    assert scene.slots.free("p", "p-1", scene.seen("p-1").raw) is True
    assert (scene.process.slots_in_use, scene.holders) == (1, {"p-other": "RUNNING"})
    assert isinstance(scene.grants.grant(seen, [PlannedStart("p-2", 1)], 0, NOW), GrantRefused)


def test_a_slot_is_freed_only_of_a_holder_that_is_unchanged(scene: ProtocolScene) -> None:
    scene.hold({"p-1": reserved()})
    seen = scene.seen("p-1").raw
    assert scene.do("ConfirmSlot", "p-1") == ""
    before = scene.item
    assert scene.slots.free("p", "p-1", seen) is False
    assert scene.slots.free("p", "p-none", seen) is False
    assert scene.item == before


@pytest.mark.parametrize("now", [NOW + 0.2, None], ids=["quiet", "alive"])
def test_a_check_is_recorded_only_on_an_unchanged_holder(now: float | None, scene: ProtocolScene) -> None:
    scene.hold({"p-1": reserved()})
    seen = scene.seen("p-1").raw
    scene.do("ConfirmSlot", "p-1")
    assert scene.slots.mark_quiet("p", "p-1", seen, now) is False
    assert scene.slots.mark_quiet("p", "p-1", scene.seen("p-1").raw, now) is True
    assert scene.seen("p-1").quiet_since == (NOW + 1 if now else None)  # rounding must not shorten the gap


def test_an_execution_is_adopted_once_above_the_limit_and_plans_are_outdated(scene: ProtocolScene) -> None:
    scene.change(slot_limit=number(1))
    seen = scene.process
    assert scene.slots.adopt("p", "p-1", NOW + 0.5, "job", 3, key="acme", redriven=True) is True
    assert scene.slots.adopt("p", "p-1", NOW, "job") is False
    assert scene.slots.adopt("q", "q-1", NOW, "job") is False
    holder = scene.seen("p-1")
    assert (holder.state, holder.since, holder.target, holder.redriven) == ("RUNNING", NOW, "job", True)
    assert (scene.process.slots_in_use, scene.process.held_by_key) == (3, {"acme": 3})
    assert scene.process.grants == seen.grants + 1


def test_a_process_is_read_consistently(scene: ProtocolScene) -> None:
    reads = passed_values(scene.dynamodb, "GetItem", "ConsistentRead")
    scene.slots.read("p")
    scene.grants.read("p")
    assert reads == [True, True]


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("key", ["", "acme"])
def test_another_limit_of_a_key_refuses_a_grant_that_was_planned_before(
    limit: int | None, key: str, scene: ProtocolScene
) -> None:
    """No condition of a grant counts the weight of a key."""
    scene.change(key_limit=number(2), key_limits={"M": {"acme": number(1)}})
    seen = scene.process
    scene.processes.set_key_limit("p", limit, key)
    changed = scene.item
    assert isinstance(scene.grants.grant(seen, [PlannedStart("p-1", 1, "acme")], 0, NOW), GrantRefused)
    assert scene.item == changed


@pytest.mark.parametrize("changed", ["counter", "holders"])
def test_a_drifted_counter_is_repaired_only_if_nothing_has_changed(changed: str, scene: ProtocolScene) -> None:
    scene.hold({"p-1": running(2) | {"key": {"S": "acme"}}})
    scene.change(slots_in_use=number(7))
    seen = scene.process
    if changed == "counter":
        scene.change(slots_in_use=number(8))
    else:  # their number is the same, with another weight
        scene.change(holders={"M": {"p-2": {"M": running(3)}}})
    assert scene.processes.repair_counter(seen) is False
    before = scene.item
    assert scene.processes.repair_counter(scene.process) is True
    assert scene.item == before | {"slots_in_use": number(scene.process.held_weight)}
    assert scene.process.slots_in_use == scene.process.held_weight


def test_a_holder_is_below_150_bytes(scene: ProtocolScene) -> None:
    """500 holders fit an item of 400 KB, and the write units of each write grow with the item."""
    name = "p" * 47 + "-" + "a" * 32
    scene.hold({name: reserved()})
    scene.do("ConfirmSlot", name)
    scene.slots.mark_quiet("p", name, scene.seen(name).raw, NOW)
    fields = scene.item["holders"]["M"][name]["M"]
    size = len(name) + 3 + sum(len(key) + 1 + len(next(iter(value.values()))) for key, value in fields.items())
    assert size < 150


# Processes


def test_f8_a_process_that_is_added_again_keeps_its_holders(scene: ProtocolScene) -> None:
    scene.hold({"p-1": running()})
    before = scene.item
    assert scene.processes.create("p", 9, "job") is False
    assert scene.item == before


def test_a_process_never_has_a_value_of_grants_again(scene: ProtocolScene) -> None:
    """A dispatch may have a plan of an earlier process of this name."""
    scene.processes.create("q", 1)
    first = scene.grants.read("q")
    scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "q"}})
    scene.pass_time(1)
    scene.processes.create("q", 1)
    second = scene.grants.read("q")
    assert first
    assert second
    assert (first.grants, second.grants) == (NOW * 1000, (NOW + 1) * 1000)


@pytest.mark.parametrize("limit", ["10", 10.0, True, -1, MAX_SLOT_LIMIT + 1, None])
def test_f7_a_limit_of_another_type_is_refused(limit: Any, scene: ProtocolScene) -> None:
    with pytest.raises(ValueError, match="slot limit must be a whole number from 0 to 100000"):
        scene.processes.set_limit("p", limit)


@pytest.mark.parametrize(
    ("attributes", "removed"),
    [
        ({"paused": {"BOOL": True}}, True),
        ({}, False),
        ({"paused": {"BOOL": True}, "holders": {"M": {"lease": {"M": leased(NOW)}}}}, False),
    ],
)
def test_a_paused_process_without_holders_is_removed(attributes: Any, removed: bool, scene: ProtocolScene) -> None:
    scene.change(**attributes)
    assert scene.operations.remove("p") is removed
    assert (scene.item == {}) is removed
    # Also without effect: the command before may have died before its ring, and the janitor does not visit the process.
    assert scene.rings == [({"process": "p"}, 0)]


def test_the_limits_of_keys_are_set_one_by_one(scene: ProtocolScene) -> None:
    def limits() -> list[int | None]:
        return [scene.process.limit_of(key) for key in ("", "acme", "other")]

    change = scene.processes.set_key_limit
    found = [(change("p", limit, key), limits())[1] for limit, key in ((3, ""), (0, "acme"), (7, "other"), (1, "acme"))]
    assert found == [[3, 3, 3], [3, 0, 3], [3, 0, 7], [3, 1, 7]]
    found = [(change("p", None, key), limits())[1] for key in ("acme", "", "unknown", "other")]
    assert found == [[3, 3, 7], [None, None, 7], [None, None, 7], [None] * 3]
    assert scene.processes.create("q", 9, key_limit=2, key_limits={"acme": 0})
    created = scene.grants.read("q")
    assert created
    assert [created.limit_of(key) for key in ("", "acme")] == [2, 0]


@pytest.mark.parametrize(
    ("limit", "key", "message"),
    [
        (-1, "", "limit of a key must be a whole number from 0 to 100000, got -1"),
        (True, "acme", "limit of a key must be a whole number from 0 to 100000, got True"),
        (1, "\u20ac" * 22, "key must have at most 64 bytes in UTF-8, got 66 bytes"),
        (None, "a\t", "key must contain no control character"),
        (1, "new", "100 keys of process 'p' have a limit of their own, which is the most. Give this key"),
    ],
)
@pytest.mark.parametrize("known", [MAX_KEY_LIMITS, MAX_KEY_LIMITS + 1])
def test_a_limit_of_a_key_that_is_not_possible_is_refused(
    limit: int | None, key: str, message: str, known: int, scene: ProtocolScene
) -> None:
    scene.change(key_limits={"M": {f"{number:03}": {"N": "1"} for number in range(known)}})
    before = scene.process.key_limits
    with pytest.raises(ValueError, match=message):
        scene.processes.set_key_limit("p", limit, key)
    assert scene.process.key_limits == before
    scene.processes.set_key_limit("p", 9, "000")
    assert scene.process.limit_of("000") == 9


# Operators


@pytest.mark.parametrize(
    ("act", "rings"),
    [
        pytest.param(lambda it: it.set_limit("p", 9), True, id="set_limit"),
        pytest.param(lambda it: it.set_key_limit("p", 9), True, id="set_key_limit"),
        pytest.param(lambda it: it.set_key_limit("p", None), True, id="no limit of keys"),
        pytest.param(lambda it: it.set_rate("p", Rate(1, 60)), True, id="set_rate"),
        pytest.param(lambda it: it.set_rate("p", None), True, id="no rate"),
        pytest.param(lambda it: it.pause("p"), False, id="pause"),
        pytest.param(lambda it: it.resume("p"), True, id="resume"),
    ],
)
def test_a_change_that_may_allow_a_start_rings_after_its_write(act: Any, rings: bool, scene: ProtocolScene) -> None:
    refuse(scene.dynamodb, "UpdateItem", "InternalServerError")
    with pytest.raises(ClientError):
        act(scene.operations)
    assert scene.rings == []
    scene.aws.made.clear()
    act(scene.operations)
    assert scene.aws.made == ["UpdateItem"] + ["SendMessage"] * rings
    assert scene.rings == [({"process": "p"}, 0)] * rings


def test_a_process_is_paused_until_it_is_resumed(scene: ProtocolScene) -> None:
    scene.operations.pause("p")
    assert scene.process.paused
    scene.operations.resume("p")
    assert not scene.process.paused


def test_a_change_of_an_unknown_process_is_refused_without_a_ring(scene: ProtocolScene) -> None:
    for act in (
        lambda: scene.operations.set_limit("unknown", 1),
        lambda: scene.operations.set_key_limit("unknown", 1),
        lambda: scene.operations.set_key_limit("unknown", 1, "acme"),
        lambda: scene.operations.set_rate("unknown", None),
        lambda: scene.operations.pause("unknown"),
        lambda: scene.operations.resume("unknown"),
    ):
        with pytest.raises(LookupError, match="process 'unknown' does not exist"):
            act()
    assert scene.rings == []


def test_the_end_of_an_execution_makes_no_item_of_a_removed_process(scene: ProtocolScene) -> None:
    scene.slots.note_end("removed")
    assert scene.aws.tables.item("slots", "removed") == {}


def test_a_new_rate_begins_a_new_count(scene: ProtocolScene) -> None:
    scene.change(next_start=number(10**15), rate=Rate(1, 86_400).item)
    scene.operations.set_rate("p", Rate(10, 60))
    assert (scene.process.next_start, scene.process.rate) == (0, Rate(10, 60))
    scene.operations.set_rate("p", None)
    assert not scene.item.keys() & {"rate", "next_start"}


def test_a_repair_replaces_what_is_malformed_and_rings_if_nothing_has_changed(scene: ProtocolScene) -> None:
    scene.hold({"p-1": running(), "p-2": running()})
    scene.change(slot_limit={"S": "5"}, slots_in_use=number(9))
    seen = scene.item
    repaired = seen | {"slot_limit": number(5), "slots_in_use": number(1), "holders": {"M": {"p-1": {"M": running()}}}}
    before_write(scene.dynamodb, lambda _: scene.change(holders={"M": {}}))
    assert scene.operations.repair("p", seen, repaired) is False
    assert scene.rings == []
    scene.change(holders=seen["holders"])
    assert scene.operations.repair("p", seen, repaired) is True
    grants = number(int(seen["grants"]["N"]) + 1)
    assert (scene.item, scene.rings) == (repaired | {"grants": grants}, [({"process": "p"}, 0)])


@pytest.mark.parametrize("meanwhile", ["changed", "a holder changed", "added", "removed"])
def test_a_repair_of_an_item_that_is_another_one_now_is_refused(meanwhile: str, scene: ProtocolScene) -> None:
    scene.hold({"p-1": running()})
    seen = scene.item
    one, two = ({"holders": {"M": {"p-1": {"M": running(weight=weight)}}}} for weight in (3, 2))
    repairs = {"changed": {"slot_limit": number(9)}, "a holder changed": one}
    changed = repairs.get(meanwhile, {"paused": {"BOOL": True}})
    match meanwhile:
        case "changed":
            scene.change(slot_limit=number(6))
        case "a holder changed":
            scene.change(**two)
        case "added":
            scene.change(paused={"BOOL": False})
        case _:
            scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "p"}})
    before = scene.item
    assert scene.operations.repair("p", seen, seen | changed) is False
    assert scene.item == before


# The workflow's writes, from its definition


def test_f13_a_freed_reservation_is_not_confirmed(scene: ProtocolScene) -> None:
    """The janitor has freed the reservation of a slow starter, whose execution starts later."""
    scene.hold({"p-2": reserved()})
    assert scene.do("ConfirmSlot", "p-1") == REFUSED
    assert scene.holders == {"p-2": "RESERVED"}


@pytest.mark.parametrize("confirmed", [True, False])
def test_f5_a_slot_that_is_released_twice_is_released_once(confirmed: bool, scene: ProtocolScene) -> None:
    scene.hold({"p-1": reserved(weight=2) | {"key": {"S": "acme"}}, "p-2": reserved()})
    if confirmed:
        scene.do("ConfirmSlot", "p-1")
        assert (scene.seen("p-1").target, scene.process.held_by_key) == ("job", {"acme": 2, "": 1})
    assert [scene.do("ReleaseSlot", "p-1") for _ in range(2)] == ["", REFUSED]
    assert (scene.process.slots_in_use, scene.holders) == (1, {"p-2": "RESERVED"})
