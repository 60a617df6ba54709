"""Every step of the product on a table, with arguments that Hypothesis generates.

The steps are the product's methods and the workflow's tasks, so the tests use all of their expressions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError
from hypothesis import strategies as st

from slotkeeper.chatbot.signatures import SeenSignatures
from slotkeeper.retry.ledger import FAILED, WAITING, Claimed, ClaimLost, Ledger, MalformedRow, Row
from slotkeeper.retry.message import Message
from slotkeeper.slots.callers import Unanswered
from slotkeeper.slots.lost_requests import LostRequests
from slotkeeper.slots.process import Cancellation, Holder, MalformedProcess, Process, WaitingRequest
from slotkeeper.slots.processes import Cancellations, Processes
from slotkeeper.slots.protocol import Candidate, Slots
from slotkeeper.slots.request import PRIORITIES, Delivery, Priority
from slotkeeper.slots.settlement import SettlementTable
from slotkeeper.token import MalformedToken, TokenTable
from slotkeeper.token.item import RefreshLock, TokenItem
from tests.simulation.both_dynamodbs import Both
from tests.simulation.frozen import freeze
from tests.simulation.product_items import EXECUTIONS, HOLDERS, ITEMS, KEY, MESSAGES, NOW, RECEIVES, Item
from tests.simulation.transcript import Question
from tests.workflow.definition import states
from tests.workflow.interpreter import evaluate

_TASKS = [
    name for name, state in states().items() if state.get("Resource", "").startswith("arn:aws:states:::dynamodb:")
]
# The exceptions of the product for malformed items and for outcomes, and those that it passes on.
_ENDS = (MalformedProcess, MalformedToken, MalformedRow, ClaimLost, LookupError, ClientError)


class Step(NamedTuple):
    """One step with its arguments."""

    name: str
    take: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.name}{self.arguments}"

    def __call__(self, both: Both) -> None:
        """Take it on both, with any outcome. Raises AssertionError if the outcomes differ."""
        with suppress(_ENDS):
            self.take(both, *self.arguments)


# Two of three arguments are the values in the item, as if the caller had just read it.
_fits = st.sampled_from([True, True, False])
_executions = st.sampled_from(EXECUTIONS)
_seconds = st.sampled_from([NOW - 1, NOW, NOW + 0.0004, NOW + 1])
_codes = st.sampled_from(["mine", "theirs", "another"])
_few = st.integers(0, 3)
_limits = st.integers(0, 2)
_jobs = st.sampled_from(["j", "a"])
_names = st.sampled_from([KEY, "another"])
_bys = st.sampled_from(["", "anna"])
_noted = st.builds(Cancellation, st.sampled_from([int(NOW), int(NOW) + 1]))
_deliveries = st.builds(
    Delivery,
    message_id=st.just("m"),
    body=st.just("{}"),
    group_id=st.just(KEY),
    receipt_handle=st.sampled_from(["h", "h2"]),
    sequence=st.sampled_from(["1", "2", "10"]),
    receives=st.sampled_from(RECEIVES),
    sent_at=_seconds,
)
_priorities = st.sampled_from(PRIORITIES)
_candidates = st.builds(
    Candidate,
    process=st.just(KEY),
    execution=_executions,
    weight=st.sampled_from([None, 1, 1, 2, 3]),
    priority=_priorities,
    delivery=st.none() | _deliveries,
    request_id=st.sampled_from(["", "r"]),
)
_waiting = st.builds(
    WaitingRequest,
    priority=_priorities,
    receipt_handle=st.sampled_from(["h", "h2", "a"]),
    sequence=st.sampled_from(["1", "2"]).map(lambda number: number.zfill(40)),
    receives=st.sampled_from(RECEIVES),
    weight=st.just(1),
    since=st.just(int(NOW)),
    execution=_executions,
    request_id=st.just(""),
)
_statuses = st.sampled_from([[WAITING], [WAITING, FAILED]])
_locks = st.none() | st.builds(RefreshLock, release_code=_codes, expires=_seconds)
_seen_tokens = st.builds(TokenItem, generation=_limits, lock=_locks, refused_until=st.none() | _seconds)
_seen_holders = HOLDERS.map(lambda holder: holder["M"])
_attempts = st.tuples(_fits, st.sampled_from(MESSAGES), st.builds(Claimed, token=_codes, started_at=_seconds))


# Each of these functions makes a method's arguments of the generated ones.


def _keyed(_: Both, *drawn: Any) -> tuple[Any, ...]:
    return KEY, *drawn


def _unkeyed(_: Both, *drawn: Any) -> tuple[Any, ...]:
    return drawn


def _with_holder(both: Both, execution: str, fits: bool, seen: Item, *more: Any) -> tuple[Any, ...]:
    entry = both.item(KEY).get("holders", {}).get("M", {}).get(execution, {}).get("M", {})
    return KEY, execution, entry if fits else seen, *more


def _with_process(both: Both, fits: bool, in_use: int, held: int) -> tuple[Any, ...]:
    return ((fits and Slots(both.client("dynamodb"), "slots").read(KEY)) or _process(in_use, held),)


def _process(in_use: int, held: int) -> Process:
    holder = Holder("RUNNING", int(NOW), "j", None, {"state": {"S": "RUNNING"}})
    return Process(KEY, 2, in_use, {f"p-{number}": holder for number in range(held)}, False, "j")


def _with_seen(both: Both, candidate: Candidate, fits: bool, in_use: int, *more: Any) -> tuple[Any, ...]:
    return candidate, *_with_process(both, fits, in_use, in_use), *more


def _with_item(both: Both, fits: bool, seen: Item, repaired: Item) -> tuple[Any, ...]:
    key = {"process_name": {"S": KEY}}
    seen = (fits and both.item(KEY)) or seen | key
    limit = "8" if seen.get("slot_limit") == {"N": "7"} else "7"  # a repair changes something
    return KEY, seen, repaired | key | {"slot_limit": {"N": limit}}


def _with_name(both: Both, fits: bool, priority: Priority, seen: WaitingRequest, now: float) -> tuple[Any, ...]:
    (process,) = _with_process(both, fits, 1, 1)
    return process, process.named.get(priority, seen), now


def _with_registration(both: Both, now: float, fits: bool, priority: Priority, seen: WaitingRequest) -> tuple[Any, ...]:
    read = Slots(both.client("dynamodb"), "slots").read(KEY) if fits else None
    return KEY, (read.waiting.get(priority) if read else None) or seen, now


def _with_token(both: Both, fits: bool, seen: TokenItem, code: str) -> tuple[Any, ...]:
    return KEY, TokenTable(both.client("dynamodb"), "tokens").read(KEY) if fits else seen, code, NOW + 60


def _with_code(both: Both, fits: bool, code: str, *more: Any) -> tuple[Any, ...]:
    lock = both.item(KEY).get("refresh_lock", {}).get("M", {})
    return KEY, lock.get("release_code", {}).get("S", code) if fits else code, *more


def _with_attempt(both: Both, attempt: tuple[bool, Message, Claimed], *more: Any) -> tuple[Any, ...]:
    fits, message, claimed = attempt
    row = both.item(KEY)
    attempts, claim = row.get("attempts", {}).get("N"), row.get("claim", {}).get("S")
    if fits and claim:
        message, claimed = MESSAGES[attempts == "2"], replace(claimed, token=claim)
    return message, claimed, *more


def _with_row(_: Both, attempts: int, *more: Any) -> tuple[Any, ...]:
    return KEY, Row(WAITING, attempts, "", 0.0, NOW, ""), *more


_unanswered = st.builds(Unanswered, has_succeeded=st.booleans(), task_token=st.sampled_from(["", "t"]))
_named = st.sampled_from(["", "name"])  # of a downstream or an error type, which are optional
_PLAN, _ERROR, _NOW = st.just({"why": "w"}), st.just("e"), st.just(NOW)
_TABLES = {
    Slots: "slots",
    Cancellations: "slots",
    LostRequests: "slots",
    Processes: "slots",
    TokenTable: "tokens",
    Ledger: "ledger",
    SettlementTable: "settled",
    SeenSignatures: "signatures",
}
# Class -> method -> the function that makes its arguments, and the strategies of the generated ones.
_METHODS: dict[Any, dict[str, tuple[Any, ...]]] = {
    Slots: {
        "reserve": (_unkeyed, _candidates, _seconds),
        "wait": (_with_seen, _candidates.filter(lambda candidate: candidate.delivery), _fits, _few, _seconds),
        "end_wait": (_unkeyed, _candidates),
        "clear": (_with_registration, _seconds, _fits, _priorities, _waiting),
        "release": (_with_holder, _executions, _fits, _seen_holders),
        "adopt": (_keyed, _executions, _seconds, _jobs, st.sampled_from([1, 2])),
        "cancel": (_keyed, _executions),
        "mark_quiet": (_with_holder, _executions, _fits, _seen_holders, st.none() | _seconds),
        "to_wake": (_keyed, _seconds),
        "can_proceed": (_unkeyed, _candidates),
        "read": (_keyed,),
    },
    Cancellations: {
        "add": (_keyed, _executions, _seconds, _bys),
        "drop": (_keyed, _executions, _noted),
        "drop_expired": (_keyed, st.dictionaries(_executions, _noted, min_size=1, max_size=1), st.just(NOW + 2e6)),
    },
    LostRequests: {
        "lose": (_with_name, _fits, _priorities, _waiting, _seconds),
        "mark_reported": (_keyed, _executions, _seconds),
        "drop": (_keyed, _executions),
    },
    Processes: {
        "create": (_keyed, _limits, _jobs, st.booleans(), st.sampled_from([1, 2])),
        "remove": (_keyed,),
        "set_limit": (_keyed, _limits),
        "set_turn": (_keyed, _limits),
        "change_target": (_keyed, _jobs, _jobs),
        "pause": (_keyed,),
        "resume": (_keyed,),
        "repair_counter": (_with_process, _fits, _few, _few),
        "read_item": (_keyed,),
        "repair": (_with_item, _fits, ITEMS["slots"], ITEMS["slots"]),
        "all": (_unkeyed,),
        "name_targets": (_unkeyed,),
    },
    TokenTable: {
        "read": (_keyed,),
        "status": (_keyed,),
        "drop": (_keyed, _few),
        "clear_refusal": (_keyed, _seconds),
        "acquire": (_with_token, _fits, _seen_tokens, _codes),
        "store": (_with_code, _fits, _codes, st.just("t"), _seconds),
        "refuse": (_with_code, _fits, _codes, _seconds, st.just("r")),
        "release": (_with_code, _fits, _codes),
    },
    Ledger: {
        "claim": (_unkeyed, st.sampled_from(MESSAGES), _codes, _seconds, st.just(60), _named),
        "would_begin": (_unkeyed, st.sampled_from(MESSAGES), _seconds),
        "read": (_keyed,),
        "rows": (_unkeyed, _statuses),
        "failed_rows": (_unkeyed, st.just(lambda _rows: None), st.just(lambda: True)),
        "cancel": (_with_row, _few, _codes, _PLAN, _ERROR, _NOW),
        "make_due": (_with_row, _few, _NOW),
        "record": (_with_attempt, _attempts, _PLAN, _ERROR, _named),
        "defer": (_with_attempt, _attempts, _PLAN, _ERROR, _named),
        "settle_waiting": (_with_attempt, _attempts, _NOW),
        "settle_dead_lettered": (_with_attempt, _attempts),
        "settle_succeeded": (_with_attempt, _attempts, st.just("1")),
    },
    SettlementTable: {
        "missing": (_unkeyed, st.lists(_names, max_size=3)),
        "has": (_unkeyed, _names),
        "claim": (_keyed, _seconds, st.none() | _unanswered),
        "unanswered": (_keyed,),
        "note_unanswered": (_keyed, _unanswered, _seconds),
        "add": (_keyed, _codes, _NOW),
        "settled_by": (_unkeyed,),
        "note_settled_by": (_unkeyed, _seconds),
    },
    SeenSignatures: {"note": (_keyed, st.just(int(NOW)), _codes)},
}


def _step(name: str, take: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda drawn: Step(name, take, drawn))


def _call(made: Any, method: str, arguments: Callable[..., Any], both: Both, *drawn: Any) -> None:
    result = getattr(made(both.client("dynamodb"), _TABLES[made]), method)(*arguments(both, *drawn))
    if isinstance(result, Iterator):
        list(result)


# The registration that the workflow has read: one of those of the items.
_FIRST = {
    "priority": {"S": "normal"},
    "receipt_handle": {"S": "a"},
    "sequence": {"S": "1".zfill(40)},
    "receives": {"N": str(RECEIVES[0])},
    "since": {"N": str(int(NOW))},
    "execution": {"S": EXECUTIONS[0]},
}


@cache
def _question(task: str, execution: str) -> Question:
    context = {
        "Execution": {"Name": execution, "Input": {"process": KEY}},
        "State": {"EnteredTime": datetime.fromtimestamp(NOW, UTC).isoformat()},
    }
    arguments = evaluate(states()[task]["Arguments"], {"context": context}, {"first": _FIRST})
    operation = {"updateItem": "update_item", "getItem": "get_item"}[states()[task]["Resource"].rpartition(":")[2]]
    return Question("dynamodb", operation, freeze(arguments | {"TableName": "slots"}))


def _ask(task: str, both: Both, execution: str) -> None:
    both.ask(_question(task, execution))


# Table -> step -> its strategy.
STEPS: dict[str, dict[str, st.SearchStrategy[Step]]] = {table: {} for table in _TABLES.values()}
for _made, _methods in _METHODS.items():
    for _method, (_arguments, *_drawn) in _methods.items():
        _name = f"{_made.__name__}.{_method}"
        STEPS[_TABLES[_made]][_name] = _step(_name, partial(_call, _made, _method, _arguments), *_drawn)
STEPS["slots"] |= {task: _step(task, partial(_ask, task), _executions) for task in _TASKS}


def step_names() -> set[str]:
    """The names of the tested steps."""
    return {name for steps in STEPS.values() for name in steps}


def all_steps() -> set[str]:
    """The names of all steps of the product."""
    methods = {
        f"{made.__name__}.{name}"
        for made in _METHODS
        for name, _ in inspect.getmembers(made, inspect.isfunction)
        if not name.startswith("_")
    }
    return methods | set(_TASKS)
