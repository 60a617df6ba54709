"""The name of an execution, which follows from process, request id and attempt."""

from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.request import execution_name


def test_the_name_is_the_documented_hash() -> None:
    # python3 -c "import hashlib; print(hashlib.sha256(b'order-1\n2').hexdigest()[:32])"
    assert execution_name("sales", "order-1", 2) == "sales-fb418ef8531f54475f9925bb01241d87"


@given(st.from_regex(r"[A-Za-z0-9_-]{1,47}", fullmatch=True), st.text(min_size=1, max_size=128), st.integers(1, 10**6))
def test_step_functions_accepts_the_name(process: str, request_id: str, attempt: int) -> None:
    name = execution_name(process, request_id.replace("\ud800", ""), attempt)
    assert len(name) <= 80
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def test_request_id_and_attempt_are_separate_in_the_name() -> None:
    assert execution_name("p", "a1", 1) != execution_name("p", "a", 11)
