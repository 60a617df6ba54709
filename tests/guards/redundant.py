"""Terms without which nothing changes, with the reasons. If something notices one after all, `make guards` fails."""

from __future__ import annotations

# Of each sender, terms of which one is enough. All of them together are left out too, and that must be noticed.
EITHER = {
    "RequestTable.end_homeless, RequestTable.leave, RequestTable.refuse": (
        "without #state = :queued",
        "without attribute_exists(place)",
    ),
    "Ledger.cancel": ("without #status = :waiting", "without attempts = :before"),
    "RequestTable.mark_started": ("without #state = :queued", "without attribute_exists(place)"),
    "RequestTable.note_put_back": ("without #state = :queued", "without attribute_exists(place)"),
}
_OUTCOMES = "it is as in Outcomes, and tests/workflow/expression_cases.py compares the two"
_OWN_CLAIM = "`claim = :mine` is compared, and no other attempt has this code"
_NEEDLESS = {
    "Endings.publish: without #state = :state": "another end has another time, and `#open = :open` is compared",
    "Grants.drop: never holders.#n.weight = :w": "a reservation of weight 1 has no attribute for it",
    "Ledger.cancel: without SET claim = :mine": "a cancellation that is not recognized is found by its plan",
    "Ledger.cancel: without SET lease_until = :ended": "a waiting row has no lease, which counts as one that has ended",
    "Ledger.claim: :first for if_not_exists(first_attempt_at, :first)": "each message has this time",
    "Ledger.claim: without REMOVE #result": "only a succeeded request has a result, and it is never claimed",
    "Ledger.claim: without attempts = :attempt": "a claim is of one attempt, and `claim = :seen` is compared",
    "Ledger.defer: without attempts = :attempt": _OWN_CLAIM,
    "Ledger.record: without attempts = :attempt": _OWN_CLAIM,
    "Ledger.settle_dead_lettered: without attempts = :attempt": _OWN_CLAIM,
    "Ledger.settle_succeeded: without attempts = :attempt": _OWN_CLAIM,
    "Ledger.settle_waiting: without attempts = :attempt": _OWN_CLAIM,
    "Ledger.make_due: without #status = :waiting": "the returned row shows whether the attempt still waits",
    "Ledger.make_due: without attempts = :before": "the returned row shows whether the attempt still waits",
    "Ledger.settle_dead_lettered: #status never :running": "the decision is recorded first, which sets FAILED",
    "Ledger.settle_waiting: #status never :running": "the decision is recorded first, which sets FAILED",
    "Ledger.settle_succeeded: #status never :failed": "an attempt whose failure was recorded does not succeed",
    "Ledger.settle_succeeded: without REMOVE #plan": "only an attempt whose failure was recorded has a plan",
    "Outcomes.failed: without REMOVE expires": "only a row that has ended has this attribute, and its end stays",
    "Outcomes.failed: without REMOVE published": "only a row that has ended has this attribute, and its end stays",
    "Requeues.give_back, Requeues.redrive: without #state = :seen": "a later end removes the body, which is required",
    "Processes.repair_counter: without attribute_exists(process_name)": "the counter is compared, so there is an item",
    "RecordOutcome: #state never :failed": _OUTCOMES,
    "RecordOutcome: without #state IN (:queued, :started, :failed)": _OUTCOMES,
    "RecordOutcome: without REMOVE deadline": _OUTCOMES,
    "RecordOutcome: without REMOVE expires": _OUTCOMES,
    "RecordOutcome: without REMOVE published": _OUTCOMES,
    "RecordOutcome: without SET cause = :cause": _OUTCOMES,
    "RecordOutcome: without SET code = :code": _OUTCOMES,
    "RecordOutcome: without SET ended = :now": _OUTCOMES,
    "RecordOutcome: without SET failed = :now": _OUTCOMES,
}


def reason_of(sender: str, name: str) -> str:
    """Why a mutation changes nothing; empty if it must be noticed."""
    if name in EITHER.get(sender, ()):
        return f"one of {', '.join(EITHER[sender])} is enough"
    return _NEEDLESS.get(f"{sender}: {name}", "")
