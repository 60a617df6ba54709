"""What the commands answer about requests with keys, and about the limits of keys."""

from __future__ import annotations

from tests.command.account_contents import edit, fail
from tests.command.operator_account import Operator
from tests.command.request_situations import _answers
from tests.command.situations import Names


def _keys_wait(operator: Operator) -> Names:
    """All slots are in use: by a lease, and by two requests of key acme and two without one, which is their limit."""
    operator.processes.set_limit("sample", 5)
    operator.processes.set_key_limit("sample", 2)
    for request_id, key in (("a1", {"key": "acme"}), ("a2", {"key": "acme"}), ("n0", {}), ("n2", {})):
        operator.hold(request_id, **key)
    operator.lease("lease-1", 1_790_000_600)
    names = {each: operator.wait(each, key="acme") for each in ("a3", "a4")}
    operator.wait("heavy", key="b", weight=3)
    return names | {"b1": operator.wait("b1", key="b"), "n1": operator.wait("n1")}


def _own_limits(operator: Operator) -> None:
    operator.processes.set_key_limit("sample", 4)
    operator.processes.set_key_limit("sample", 1, "a b\u202e")
    edit(operator, "after_keys", {"M": {"1": {"S": "acme"}, "0": {"S": "b"}}})
    operator.wait("a1", key="a b\u202e")
    operator.processes.create("plain", 1, "sample-job")


def _failures(operator: Operator) -> None:
    for request_id, key in (("a1", {"key": "acme"}), ("n1", {})):
        fail(operator, request_id, **key)


def _malformed_keys(operator: Operator) -> Names:
    """The item was edited; a holder's row has its key, a lease has none."""
    operator.processes.set_limit("sample", 5)
    names = {"a": operator.hold("a", key="acme"), "n": operator.hold("n"), "text": operator.hold("text", key="b")}
    operator.lease("lease-1", 1_790_000_600)
    edit(operator, "key_limit", {"S": "three"})
    edit(operator, "key_limits", {"M": {"paused": {"S": "4"}, "a.b=c": {"L": []}}})
    edit(operator, "after_keys", {"M": {"1": {"N": "5"}}})
    edit(operator, f"holders/{names['text']}", {"S": "broken"})
    for name in (names["a"], names["n"], "lease-1"):
        edit(operator, f"holders/{name}/key", {"N": "5"})
    return names


def _no_map_of_limits(operator: Operator) -> None:
    edit(operator, "key_limits", {"S": "3"})


def _plain(_: Operator) -> None:
    """The process sample, without any key."""


_SET = "process set-key-limit sample"
_FULL = '2 of 2 slots of key "acme" in use'
_REPAIR = "process repair sample --yes"
_SUBMIT = "request submit --process sample --key"
SITUATIONS = {
    **_answers(
        _keys_wait,
        (
            *("explain a4", 0, 'it is number 2 of key "acme" (1 ahead of it), in turn 3 requests start before it, and'),
            *(f'behind a3, which is next of key "acme"; {_FULL}', "held by a1", "held by a2", "key: acme"),
            {"never": ("held by n0",), "shows": {"position": 4, "key": "acme", "ahead_of_key": 1, "found.0.ahead": 3}},
        ),
        ("explain a3", 0, f"0 requests start before it, and has waited for 59 s: {_FULL}.", {"never": ("behind",)}),
        ("explain b1", 0, "in turn 1 request starts before it", "5 of 5 slots in use", "held by lease-1"),
        (
            *("explain n1", 0, "number 1 of requests without a key", "2 of 2 slots of requests without a key in use"),
            *("held by n0", {"never": ("lease-1", "behind")}),
        ),
        (
            *("explain heavy", 0, "one of 5 in the queue, and has waited for 59 s: blocked: weight 3 above the limit"),
            "-> slotkeeper process set-key-limit sample 3 --key b",
        ),
        (
            *("explain --process sample --key acme", 0, 'would be number 5 in the queue, and number 3 of key "acme"'),
            *("behind a3", _FULL, "a lease of sample:", "- behind b1, which is next", "- 5 of 5 slots in use"),
            {"shows": {"key": "acme", "ahead_of_key": 2}},
        ),
        (
            *("request list sample --state queued", 0, "request  key", "1        a3       acme", "2        b1       b"),
            *("blocked  heavy    b", "3        n1  ", "4        a4       acme"),
        ),
        ("request list sample --key acme", 0, *("started  a1", "a2", "a3", "a4"), {"shows": {"queued": 2}}),
        ("request list sample --key ''", 0, "n0", "n1", {"never": ("a3", "heavy", "key  "), "shows": {"queued": 1}}),
        ("request list sample --since 2026-09-21 --key b", 0, "heavy", "b1", "2 requests since", {"never": ("a1",)}),
        ("request cancel --process sample --all --key acme", 6, "Cancel 2 of 5 queued requests of sample (a3, a4), so"),
        ("request cancel --process sample --all --key '' --yes", 0, "cancelled: n1 (sample)", "1 request cancelled, 0"),
        ("request cancel --process sample --all --key acm", 4, "no such request of sample is queued"),
        (f"{_SET} 0 --key acme", 6, 'key "acme" of sample from none to 0? Nothing of it starts then: 2 queued'),
        (f"{_SET} 3", 0, "sample: limit of each key: 2 -> 3.\n", {"never": ("Blocked",)}),
        (f"{_SET} 1", 0, 'sample: limit of each key: 2 -> 1.\nBlocked: heavy (key "b", weight 3); it waits until'),
        ("process set-limit sample 2 --yes", 0, 'Blocked: heavy (key "b", weight 3)'),
        (f"{_SUBMIT} acme --weight 3", 0, 'Warning: weight 3 above the limit 2 of key "acme" of sample, so it waits'),
    ),
    **_answers(
        _own_limits,
        (
            *("process list", 0, "of each key  own limits   last turn", r"4  a b\u202e 1  high b, acme"),
            {"shows": {"processes.1.key_limit": 4, "processes.1.last_turns.high": "b", "processes.0.key_limits": {}}},
        ),
        ("process remove sample --yes", 0, "--key-limit 4", "set-key-limit sample 1 --key $'a b\\342\\200\\256'"),
        ("explain a1", 0, r'number 1 of key "a b\u202e" (0 ahead of it), in turn 0', {"never": ("\u202e",)}),
        (f"{_SET} none", 0, "sample: limit of each key: 4 -> none.\n"),
        (f"{_SET} 9 --key c", 0, 'sample: limit of key "c": 9 -> 9.\n', {"shows": {"key": "c", "before": None}}),
    ),
    **_answers(
        _failures,
        ("failed list --key acme", 0, "1 failure, ", {"shows": {"failures": 1, "groups.0.newest": "a1"}}),
        ("request list sample --key acme", 0, "failed  a1", {"never": ("n1",)}),
        ("failed show --key acme", 0, "a1 in sample: failed", "key: acme"),
        ("failed redrive --key '' --dry-run", 0, "would be redriven: n1 (sample)", {"never": ("a1",)}),
        ("failed discard --key acme --yes", 0, "discarded: a1 (sample)", "1 request discarded, 0 left."),
        ("failed discard --key other --yes", 4, "there is no such failure"),
    ),
    **_answers(
        _malformed_keys,
        (
            *(_REPAIR, 0, "the item is valid now", "holders.lease-1.key: removed (a lease has none)"),
            *("holders.{n}.key: removed (its request)", 'holders.{a}.key: {"S": "acme"} (its request)'),
            *('"key": {"S": "b"}', 'key_limit: {"N": "0"} (no', 'key_limits.a.b=c: {"N": "0"}'),
            'key_limits.paused: {"N": "4"} (the value itself)',
            *("after_keys: removed (the turns"),
        ),
        (
            *(f"{_REPAIR} --set key_limits.a.b=c=2 --set key_limit=5", 0, 'key_limit: {"N": "5"} (--set)'),
            'key_limits.a.b=c: {"N": "2"} (--set)',
        ),
        (f"{_REPAIR} --set key_limit=100001", 2, "limit of a key must be a whole number from 0 to 100000, got 100001"),
    ),
    **_answers(_no_map_of_limits, (_REPAIR, 0, 'key_limits: {"M": {}} (it is paused until', 'paused: {"BOOL": true}')),
    **_answers(
        _plain,
        ("process list", 0, "sample", {"never": ("key", "own limits", "last turn")}),
        ("process add new --limit 9 --key-limit 2", 0, "new has 9 slots for leases only, at most 2 of them for each"),
        (f"{_SUBMIT} {'é' * 33}", 2, "--key must have at most 64 bytes in UTF-8, got 66 bytes. Nothing was sent."),
    ),
}
