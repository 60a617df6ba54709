"""The registrar answers CloudFormation once, with any parameters of the template and any refusal of AWS."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.cold_functions import RESPONSE_URL, Functions
from tests.fuzz.strategies import attributes, texts, values
from tests.support.in_process_tables import SLOTS

VALID = {"ProcessName": "p", "SlotLimit": "3", "Target": "job", "ServiceToken": "arn"}
# The values that template.yaml allows, and any value of parameters that it does not check.
properties = st.fixed_dictionaries(
    {"ServiceToken": st.just("arn")},
    optional={
        "ProcessName": st.from_regex(r"[A-Za-z0-9_-]{1,47}", fullmatch=True) | st.just("p"),
        "SlotLimit": st.integers(-5, 600).map(str) | texts | values | st.just("9" * 5000),
        "Target": st.text(max_size=255) | st.just("job") | values,
        "JobArns": st.lists(texts) | st.just(["job/*"]),
        "SampleJob": texts,
    },
)


@given(
    now=st.just(VALID) | properties,
    before=st.none() | properties,
    request=st.sampled_from(["Create", "Update", "Delete", "Other"]),
    there=st.none() | attributes,
    job=st.sampled_from([{}, {"MaxRetries": 0}, {"MaxRetries": 3}, None]),
    refused=st.none() | st.tuples(st.sampled_from(["GetJob", "PutItem", "UpdateItem", "Scan"]), texts.filter(bool)),
    resource=st.sampled_from(["Process", "PermittedJobs"]),
)
@example(
    now=VALID | {"SlotLimit": "4", "Target": "名" * 255},
    before=None,
    request="Create",
    there=None,
    job=None,
    refused=("GetJob", "名" * 5000),
    resource="Process",
).via("a reason of 6 KB as JSON; CloudFormation accepts 4")
def test_every_custom_resource_request_gets_one_answer(
    functions: Functions,
    *,
    now: dict[str, Any],
    before: dict[str, Any] | None,
    request: str,
    there: dict[str, Any] | None,
    job: dict[str, Any] | None,
    refused: tuple[str, str] | None,
    resource: str,
) -> None:
    account = functions.new_account()
    account.jobs = {} if job is None else {"job": job}
    if refused and refused[1] != "AccessDeniedException":
        account.refuse = dict([refused])
    stored = account.tables.put(SLOTS, {"process_name": {"S": "p"}, "holders": there}) if there else {}
    event = {
        "RequestType": request,
        "ResponseURL": RESPONSE_URL,
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": resource,
        "ResourceType": f"Custom::{resource}",
        "ResourceProperties": now,
    } | ({"OldResourceProperties": before} if before is not None else {})
    ran = functions.run(functions.load("process_registrar"), event)
    assert ran.raised is None, ran
    (answer,) = functions.answered
    name = now.get("ProcessName", "process") if resource == "Process" else "permitted-jobs"
    assert answer["PhysicalResourceId"] == name
    assert answer["Status"] == "SUCCESS" or answer["Reason"]
    if there:
        assert account.tables.item(SLOTS, "p") == stored
