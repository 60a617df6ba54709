"""Items that Hypothesis generates: some with the documented shape, most with small differences."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, RUNNING, SUCCEEDED, WAITING
from slotkeeper.retry.message import Message, instant
from slotkeeper.slots.request import PRIORITIES, Priority

Item = dict[str, Any]
Items = st.SearchStrategy[Item]

NOW = 1_800_000_000.0
KEY = "k"  # of the only item of each table
RECEIVES = (2, 9, 10)
EXECUTIONS = ("a.b-c", "b")
MESSAGES = [Message(KEY, {}, (NOW - 9,) * earlier) for earlier in (0, 1)] + [Message(KEY, {"other": 1})]

_small = st.integers(0, 3).map(lambda number: {"N": str(number)})
_texts = st.sampled_from([{"S": text} for text in ("a", "2", "RUNNING", "x" * 40)])
ANYTHING = st.one_of(
    _small,
    _texts,
    st.sampled_from([{"BOOL": True}, {"BOOL": False}, {"NULL": True}, {"SS": ["a", "b"]}, {"NS": ["1"]}]),
    st.sampled_from([{"N": "-1"}, {"N": "1.5"}, {"N": "12345678901234567890"}]),
    st.sampled_from([{"M": {}}, {"M": {"a": {"N": "1"}}}, {"L": []}, {"L": [{"S": "a"}]}]),
)


def shaped(required: dict[str, Items], optional: dict[str, Items]) -> Items:
    """Items of this shape, and items in which up to two attributes are missing or have other values."""
    return _nearly(st.fixed_dictionaries(required, optional=optional), *required, *optional)


def _nearly(whole: Items, *names: str) -> Items:
    damage = st.dictionaries(st.sampled_from(names), st.none() | ANYTHING, max_size=2)
    return whole | st.builds(_changed, whole, damage)


def _changed(item: Item, changes: Item) -> Item:
    return {name: value for name, value in (item | changes).items() if value is not None}


def _map(required: dict[str, Items], optional: dict[str, Items]) -> Items:
    return shaped(required, optional).map(lambda members: {"M": members})


_times = st.sampled_from([{"N": str(int(NOW) + seconds)} for seconds in (-1, 0, 1)] + [{"N": f"{NOW:.3f}"}])
HOLDERS = _map(
    {"state": st.sampled_from([{"S": "RESERVED"}, {"S": "RUNNING"}]), "since": _times},
    {"job": _texts, "quiet_since": _times, "weight": st.sampled_from([{"N": "2"}, {"N": "3"}])},
)


def _held(least: int) -> Items:
    return st.dictionaries(st.sampled_from(EXECUTIONS), HOLDERS, min_size=least).map(lambda held: {"M": held})


_sequences = st.sampled_from([{"S": str(number).zfill(40)} for number in (1, 2, 10)])
_receives = st.sampled_from([{"N": str(number)} for number in RECEIVES])
_cancelled = st.dictionaries(st.sampled_from(EXECUTIONS), _map({"since": _times}, {"by": _texts})).map(
    lambda noted: {"M": noted}
)
_lost = st.dictionaries(
    st.sampled_from(EXECUTIONS),
    _map({"request_id": _texts, "priority": _texts, "since": _times, "noted": _times}, {"reported": _times}),
).map(lambda noted: {"M": noted})
_turns = st.sampled_from([{"N": str(int(NOW * 1000) + ahead)} for ahead in (-1500, -1, 0, 5000)])
_positions = {"sequence": _sequences, "receives": _receives}


def _waiting(priority: Priority) -> Items:
    """A registration or a tombstone of this priority."""
    registered = {
        "receipt_handle": _texts,
        "priority": st.just({"S": priority}),
        "weight": st.sampled_from([{"N": "1"}, {"N": "2"}, {"N": "9"}]),
        "since": _times,
        "execution": st.sampled_from([{"S": name} for name in EXECUTIONS]),
    }
    named = {name: registered[name] for name in ("since", "execution")} | {"request_id": _texts}
    return st.one_of(
        _map(_positions | registered, {"request_id": _texts, "hidden_until": _times}),
        _map(_positions, {}),
        _map(_positions | named, {}),
    )


_kept = st.fixed_dictionaries(
    {"target": _texts, "waiting": _map({}, {priority: _waiting(priority) for priority in PRIORITIES})},
    optional={
        "default_weight": st.just({"N": "2"}),
        "cancelled": _cancelled,
        "lost": _lost,
        "paused": st.sampled_from([{"BOOL": True}, {"BOOL": False}]),
        "turn_high": _turns,
        "turn_normal": _turns,
        "turn_seconds": st.sampled_from([{"N": "0"}, {"N": "2"}]),
    },
)


def _counted(holders: Item, drift: int, free: int, other: Item) -> Item:
    weights = (entry.get("M", {}).get("weight", {}).get("N", "1") for entry in holders["M"].values())
    in_use = sum(int(weight) if weight.isdecimal() else 1 for weight in weights) + drift
    return {"holders": holders, "slots_in_use": {"N": str(in_use)}, "slot_limit": {"N": str(in_use + free)}, **other}


# Mostly full, or with one free slot: a wrong comparison shows there.
_process = _nearly(
    st.builds(
        _counted,
        st.one_of(_held(2), _held(1), _held(0)),
        st.sampled_from([0, 0, 9, 1, -1]),
        st.sampled_from([0, 1, 0, 1, 5, -1]),
        _kept,
    ),
    *("holders", "slots_in_use", "slot_limit", "target", "waiting", "paused", "cancelled", "default_weight"),
)
_codes = st.sampled_from([{"S": code} for code in ("mine", "theirs")])
_token = shaped(
    {"access_token": _texts, "generation": _small, "stored_at": _times},
    {"refresh_lock": _map({"release_code": _codes, "expires": _times}, {}), "refused_until": _times}
    | {"refused_reason": _texts, "refresh_seconds": _times},
)
_hashes = st.sampled_from([{"S": message.payload_hash} for message in MESSAGES])
_status = st.sampled_from(
    [{"S": status} for status in (RUNNING, RUNNING, WAITING, WAITING, FAILED, SUCCEEDED, DEAD_LETTERED)]
)
_past = st.fixed_dictionaries(
    {"attempt": _small, "at": st.just({"S": instant(NOW)}), "error": _texts}, optional={"type": _texts}
)
_row = shaped(
    {
        "status": _status,
        "attempts": st.sampled_from([{"N": "1"}, {"N": "2"}, {"N": "0"}]),
        "claim": _codes,
        "payload_hash": _hashes,
        "last_attempt_at": st.just({"S": instant(NOW)}),
        "lease_until": _times,
    },
    {
        "first_attempt_at": st.just({"S": instant(NOW)}),
        "next_attempt_at": st.just({"S": instant(NOW)}),
        "plan": st.just({"S": '{"why": "timeout"}'}),
        "result": st.just({"S": "1"}),
        "downstream": _texts,
        "history": st.lists(_past.map(lambda entry: {"M": entry}), max_size=2).map(lambda past: {"L": past}),
    },
)
_noted = shaped({"request_id": _codes}, {"expires_at": _times})
_settled = shaped({"expires_at": _times}, {"settled_at": _times, "claimed_until": _times})

ITEMS = {"slots": _process, "tokens": _token, "ledger": _row, "settled": _settled, "signatures": _noted}
