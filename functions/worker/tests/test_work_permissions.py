"""The policy `work` of the worker's role has exactly the permissions that the shipped work needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from dev.tools.function_folders import FUNCTIONS, code_folders
from tests.http_servers import Listener
from tests.simulation.account.items import LEDGER
from tests.template.roles import needs
from tests.template.roles.cases import message, put
from tests.template.roles.evidence import stack
from tests.template.roles.policies import Grant, Need, grants
from tests.template.roles.recording import Call, Case, Recorded, recorder
from tests.template.roles.sites import reachable

INPUT = "work/input/orders.jsonl"
LINES = b'{"city": "Oslo"}\n{"city": "Rome"}\n'
README = FUNCTIONS / "worker" / "README.md"
MANIFEST = {
    "request_id": "r",
    "attempt": 1,
    "prefix": "work/parts/r/1/new/",
    "parts": [],
    "records": 0,
    "input": {"key": INPUT},
    "split_by": "city",
}


def _cases() -> Iterator[Case]:
    request: dict[str, Any] = {"request_id": "r", "payload": {"input_key": INPUT, "split_by": "city"}}
    sent = message(request, "work")
    second = message(request | {"retries": ["2027-01-15T07:59:00.000Z"]}, "work")

    def input_exists(account: Recorded) -> None:
        account.objects[INPUT] = LINES

    def published(account: Recorded) -> None:
        input_exists(account)
        account.objects["work/parts/r/1/old/Oslo.jsonl"] = b"{}"
        account.objects["work/published/r.json"] = json.dumps(MANIFEST).encode()

    yield Case("WorkerFunction", "success", sent, input_exists)
    yield Case("WorkerFunction", "a second attempt", second, input_exists)
    yield Case("WorkerFunction", "another attempt has published", second, published)
    yield Case("WorkerFunction", "a missing input", sent, put(LEDGER))


@cache
def _calls() -> list[Call]:
    with recorder(stack("default")) as running, Listener() as api:
        running.functions.code["worker"] = code_folders()["worker"]
        for case in _cases():
            running.run(case, api)
    return [call for call in running.calls["WorkerFunction"] if call.service == "s3"]


def _granted() -> list[Grant]:
    return grants(stack("default"), "WorkerRole", of_work=True)


def _needed() -> set[Need]:
    return {need for call in _calls() for need in needs.of_call(call, stack("default"))}


def test_every_call_of_the_work_is_allowed() -> None:
    assert {need for need in _needed() if not any(grant.allows(need) for grant in _granted())} == set()


def test_every_permission_of_the_work_is_used() -> None:
    assert [str(grant) for grant in _granted() if not any(map(grant.allows, _needed()))] == []


def test_every_call_site_of_the_work_is_recorded() -> None:
    sites = reachable(sorted(code_folders()["worker"].rglob("*.py")))
    seen = {(call.operation, call.site) for call in _calls()}
    assert {each for each in sites - seen if each[1].file.startswith("functions/")} == set()


def test_each_permission_is_on_the_page_and_names_a_prefix_of_the_bucket() -> None:
    bucket = stack("default").arn("DataBucket")
    granted = {(grant.action, grant.resource.replace(bucket, "DataBucket")) for grant in _granted()}
    listed = re.findall(r"^- `(DataBucket\S*)`: (.+)$", README.read_text(), re.MULTILINE)
    assert granted == {(action, name) for name, text in listed for action in re.findall(r"`(s3:\w+)`", text)}
    assert {resource for action, resource in granted if action != "s3:ListBucket"} == {
        f"DataBucket/work/{folder}/*" for folder in ("input", "parts", "published")
    }
