"""Every step of the product on a table, with arguments that Hypothesis generates.

The steps are the product's methods and the workflow's tasks, so the tests use all of their expressions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError
from hypothesis import strategies as st

from slotkeeper.chatbot.signatures import SeenSignatures
from slotkeeper.retry.ledger import FAILED, WAITING, Claimed, ClaimLost, Ledger, MalformedRow, Row
from slotkeeper.retry.message import Message
from slotkeeper.slots.cancellation import Cancellation, Cancellations
from slotkeeper.slots.process import MalformedProcess, Process, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import Delivery
from slotkeeper.slots.settlement_table import SettlementTable
from slotkeeper.token import MalformedToken, TokenTable
from slotkeeper.token.item import RefreshLock, TokenItem
from tests.simulation.both_dynamodbs import Both
from tests.simulation.frozen import freeze
from tests.simulation.product_items import EXECUTIONS, HOLDERS, KEY, MESSAGES, NOW, RECEIVES, Item
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


def _step(name: str, take: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda drawn: Step(name, take, drawn))


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
_handles = st.sampled_from(["h", "h2", "a"])
_statuses = st.sampled_from([[WAITING], [WAITING, FAILED]])
_locks = st.none() | st.builds(RefreshLock, release_code=_codes, expires=_seconds)
_seen_tokens = st.builds(TokenItem, generation=_limits, lock=_locks, refused_until=st.none() | _seconds)
_seen_holders = HOLDERS.map(lambda holder: holder["M"])
_attempts = st.tuples(_fits, st.sampled_from(MESSAGES), st.builds(Claimed, token=_codes, started_at=_seconds))


def _slots(both: Both) -> Slots:
    return Slots(both.client("dynamodb"), "slots")


def _processes(both: Both) -> Processes:
    return Processes(both.client("dynamodb"), "slots")


def _cancellations(both: Both) -> Cancellations:
    return Cancellations(both.client("dynamodb"), "slots")


def _tokens(both: Both) -> TokenTable:
    return TokenTable(both.client("dynamodb"), "tokens")


def _ledger(both: Both) -> Ledger:
    return Ledger(both.client("dynamodb"), "ledger")


def _settled(both: Both) -> SettlementTable:
    return SettlementTable(both.client("dynamodb"), "settled")


def _signatures(both: Both) -> SeenSignatures:
    return SeenSignatures(both.client("dynamodb"), "signatures")


def _holder_now(both: Both, execution: str) -> Item:
    entry: Item = both.item(KEY).get("holders", {}).get("M", {}).get(execution, {}).get("M", {})
    return entry


def _release(both: Both, execution: str, fits: bool, seen: Item) -> Any:
    return _slots(both).release(KEY, execution, _holder_now(both, execution) if fits else seen)


def _mark_quiet(both: Both, execution: str, fits: bool, seen: Item, now: float | None) -> Any:
    return _slots(both).mark_quiet(KEY, execution, _holder_now(both, execution) if fits else seen, now)


def _repair(both: Both, fits: bool, in_use: int, held: int) -> Any:
    seen = Process(KEY, 1, in_use, dict.fromkeys(range(held)), False, "j", None)
    return _processes(both).repair_counter((fits and _slots(both).read(KEY)) or seen)


def _take(both: Both, fits: bool, seen: TokenItem, code: str) -> Any:
    tokens = _tokens(both)
    return tokens.acquire(KEY, tokens.read(KEY) if fits else seen, code, NOW + 60)


def _code(both: Both, fits: bool, code: str) -> str:
    lock = both.item(KEY).get("refresh_lock", {}).get("M", {})
    return lock.get("release_code", {}).get("S", code) if fits else code


def _attempt(both: Both, attempt: tuple[bool, Message, Claimed]) -> tuple[Message, Claimed]:
    fits, message, claimed = attempt
    row = both.item(KEY)
    attempts, claim = row.get("attempts", {}).get("N"), row.get("claim", {}).get("S")
    return (MESSAGES[attempts == "2"], replace(claimed, token=claim)) if fits and claim else (message, claimed)


def _row(attempts: int) -> Row:
    """A row as an operator's command has read it."""
    return Row(WAITING, attempts, "", 0.0, NOW, "")


@cache
def _task(name: str, execution: str) -> Question:
    context = {"Execution": {"Name": execution, "Input": {"process": KEY}}}
    arguments = evaluate(states()[name]["Arguments"], {"context": context})
    operation = {"updateItem": "update_item", "getItem": "get_item"}[states()[name]["Resource"].rpartition(":")[2]]
    return Question("dynamodb", operation, freeze(arguments | {"TableName": "slots"}))


def _do(task: str, both: Both, execution: str) -> Any:
    return both.ask(_task(task, execution))


# Table -> step -> its function and arguments.
_STEPS: dict[str, dict[str, tuple[Any, ...]]] = {
    "slots": {
        "Slots.reserve": (lambda both, *given: _slots(both).reserve(KEY, *given), _executions, _seconds),
        "Slots.wait": (lambda both, *given: _slots(both).wait(KEY, *given), _executions, _deliveries),
        "Slots.release": (_release, _executions, _fits, _seen_holders),
        "Slots.adopt": (lambda both, *given: _slots(both).adopt(KEY, *given), _executions, _seconds, _jobs),
        "Slots.cancel": (lambda both, execution: _slots(both).cancel(KEY, execution), _executions),
        "Slots.mark_quiet": (_mark_quiet, _executions, _fits, _seen_holders, st.none() | _seconds),
        "Slots.waiting_at_free_slot": (lambda both: _slots(both).waiting_at_free_slot(KEY),),
        "Slots.can_proceed": (lambda both, execution: _slots(both).can_proceed(KEY, execution), _executions),
        "Slots.read": (lambda both: _slots(both).read(KEY),),
        "Cancellations.add": (lambda both, *given: _cancellations(both).add(KEY, *given), _executions, _seconds, _bys),
        "Cancellations.drop": (lambda both, *given: _cancellations(both).drop(KEY, *given), _executions, _noted),
        "Cancellations.drop_expired": (
            lambda both, execution, note: _cancellations(both).drop_expired(KEY, {execution: note}, NOW + 2e6),
            *(_executions, _noted),
        ),
        "Processes.create": (lambda both, *given: _processes(both).create(KEY, *given), _limits, _jobs),
        "Processes.remove": (lambda both: _processes(both).remove(KEY),),
        "Processes.set_limit": (lambda both, limit: _processes(both).set_limit(KEY, limit), _limits),
        "Processes.change_job": (lambda both, *given: _processes(both).change_job(KEY, *given), _jobs, _jobs),
        "Processes.pause": (lambda both: _processes(both).pause(KEY),),
        "Processes.resume": (lambda both: _processes(both).resume(KEY),),
        "Processes.repair_counter": (_repair, _fits, _few, _few),
        "Processes.all": (lambda both: list(_processes(both).all()),),
        "Slots.remove_registration": (lambda both, handle: _slots(both).remove_registration(KEY, handle), _handles),
        **{name: (partial(_do, name), _executions) for name in _TASKS},
    },
    "tokens": {
        "TokenTable.read": (lambda both: _tokens(both).read(KEY),),
        "TokenTable.status": (lambda both: _tokens(both).status(KEY),),
        "TokenTable.drop": (lambda both, generation: _tokens(both).drop(KEY, generation), _few),
        "TokenTable.clear_refusal": (lambda both, until: _tokens(both).clear_refusal(KEY, until), _seconds),
        "TokenTable.acquire": (_take, _fits, _seen_tokens, _codes),
        "TokenTable.store": (
            *(lambda both, fits, code, now: _tokens(both).store(KEY, _code(both, fits, code), "t", now), _fits),
            *(_codes, _seconds),
        ),
        "TokenTable.refuse": (
            *(lambda both, fits, code, until: _tokens(both).refuse(KEY, _code(both, fits, code), until, "r"), _fits),
            *(_codes, _seconds),
        ),
        "TokenTable.release": (
            lambda both, fits, code: _tokens(both).release(KEY, _code(both, fits, code)),
            _fits,
            _codes,
        ),
    },
    "ledger": {
        "Ledger.claim": (
            *(
                lambda both, attempt, now: _ledger(both).claim(attempt[1], attempt[2].token, now, 60),
                _attempts,
                _seconds,
            ),
        ),
        "Ledger.read": (lambda both: _ledger(both).read(KEY),),
        "Ledger.rows": (lambda both, statuses: list(_ledger(both).rows(statuses)), _statuses),
        "Ledger.cancel": (
            lambda both, attempts, code: _ledger(both).cancel(KEY, _row(attempts), code, {"why": "w"}, "e", NOW),
            *(_few, _codes),
        ),
        "Ledger.make_due": (lambda both, attempts: _ledger(both).make_due(KEY, _row(attempts), NOW), _few),
        "Ledger.record": (
            lambda both, tried: _ledger(both).record(*_attempt(both, tried), {"why": "w"}, "e"),
            _attempts,
        ),
        "Ledger.defer": (
            lambda both, tried: _ledger(both).defer(*_attempt(both, tried), {"why": "w"}, "e"),
            _attempts,
        ),
        "Ledger.settle_waiting": (
            lambda both, tried: _ledger(both).settle_waiting(*_attempt(both, tried), NOW),
            _attempts,
        ),
        "Ledger.settle_dead_lettered": (
            *(lambda both, tried: _ledger(both).settle_dead_lettered(*_attempt(both, tried)), _attempts),
        ),
        "Ledger.settle_succeeded": (
            lambda both, tried: _ledger(both).settle_succeeded(*_attempt(both, tried), "1"),
            _attempts,
        ),
    },
    "settled": {
        "SettlementTable.missing": (lambda both, names: _settled(both).missing(names), st.lists(_names, max_size=3)),
        "SettlementTable.has": (lambda both, name: _settled(both).has(name), _names),
        "SettlementTable.claim": (lambda both, now: _settled(both).claim(KEY, now), _seconds),
        "SettlementTable.add": (lambda both, by: _settled(both).add(KEY, by, NOW), _codes),
        "SettlementTable.settled_by": (lambda both: _settled(both).settled_by(),),
        "SettlementTable.note_settled_by": (lambda both, moment: _settled(both).note_settled_by(moment), _seconds),
    },
    "signatures": {"SeenSignatures.note": (lambda both, by: _signatures(both).note(KEY, int(NOW), by), _codes)},
}
STEPS = {table: {name: _step(name, *step) for name, step in steps.items()} for table, steps in _STEPS.items()}
_CLASSES = (Slots, Processes, Cancellations, TokenTable, Ledger, SettlementTable, SeenSignatures)


def tried() -> set[str]:
    """The names of the tested steps."""
    return {name for steps in STEPS.values() for name in steps}


def all_there_are() -> set[str]:
    """The names of all steps of the product."""
    methods = {
        f"{made.__name__}.{name}"
        for made in _CLASSES
        for name, _ in inspect.getmembers(made, inspect.isfunction)
        if not name.startswith("_")
    }
    return methods | set(_TASKS)
