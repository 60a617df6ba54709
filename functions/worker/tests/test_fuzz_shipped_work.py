"""The shipped work loses no message and logs no line of its input, with any input and any refusal of S3."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dev.tools.function_folders import code_folders
from tests.simulation.account.cold_functions import Functions
from tests.unit.fuzz.conftest import functions
from tests.unit.fuzz.test_fuzz_work import check_nothing_is_lost, run
from tests.unit.work_messages import record

__all__ = ["functions"]  # a fixture

KEY = "work/input/orders.jsonl"
BODY = json.dumps({"request_id": "r", "payload": {"input_key": KEY, "split_by": "city"}})
LINES = b'{"city": "Oslo"}\n{"city": "Rome"}\n'
CANARY = "canary-of-the-input"
REFUSED = {
    "GetObject": ["AccessDenied", "SlowDown", "InternalError"],
    "PutObject": ["AccessDenied", "SlowDown", "PreconditionFailed", "ConditionalRequestConflict"],
}
inputs = st.none() | st.just(LINES) | st.binary(max_size=100) | st.just(b'{"city": "' + CANARY.encode() + b'"\n')
refusals = st.fixed_dictionaries({}, optional={name: st.sampled_from(codes) for name, codes in REFUSED.items()})


@given(lines=inputs, refused=refusals)
def test_no_message_is_lost_with_any_input_and_refusal(
    functions: Functions, lines: bytes | None, refused: dict[str, str]
) -> None:
    functions.code["worker"] = code_folders()["worker"]
    functions.setenv("DATA_BUCKET_NAME", "data")
    account = functions.new_account()
    if lines is not None:
        account.objects[KEY] = lines
    account.refuse.update(refused)
    sent = record(BODY)
    ran = run(functions, [sent])
    check_nothing_is_lost(account, [sent], ran)
    assert CANARY not in ran.logged
