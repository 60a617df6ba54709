"""The examples of the documents are valid, and those in Python run unchanged."""

from __future__ import annotations

import importlib
import io
import json
import re
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import urllib3

from slotkeeper import observability, retry
from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, check_headers, verify
from slotkeeper.events import DETAIL_TYPES
from slotkeeper.retry import worker as retrying_worker
from slotkeeper.retry.message import parse_message
from slotkeeper.retry.policy import parse_policy
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.completion_events import BREAKER_SCHEMA, LIMITED_FLOW, checked
from tests.unit.conftest import CONTEXT

KEY = "0123456789abcdef"
ROOT = Path(__file__).parents[2]
RETRIES = (ROOT / "docs" / "retries.md").read_text()
REFERENCE = (ROOT / "docs" / "retries-reference.md").read_text()


def _blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


MESSAGES = (ROOT / "docs" / "messages.md").read_text()
(SIGNING,) = _blocks("python", MESSAGES)
(OWN_WORK,) = _blocks("python", RETRIES)
MESSAGE, CORRECTION = _blocks("json", RETRIES)
(POLICY,) = _blocks("json", REFERENCE)
*EVENTS, BREAKER_EVENT = map(json.loads, _blocks("json", (ROOT / "docs" / "completion-events.md").read_text()))


def test_a_message_signed_with_the_standard_library_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[urllib.request.Request] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda request: sent.append(request) or io.BytesIO(b"answer"))
    exec(SIGNING, {"signing_key": KEY, "chatbot_url": "http://127.0.0.1/messages"})
    headers = {name.lower(): value for name, value in sent[0].header_items()}
    timestamp, signature = check_headers(
        headers[TIMESTAMP_HEADER.lower()], headers[SIGNATURE_HEADER.lower()], time.time()
    )
    verify([KEY], timestamp, signature, cast(bytes, sent[0].data))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The downstream's response to the page's work, with the requests that it received."""
    response = SimpleNamespace(status=201, headers={}, json=lambda: {"invoice": "i-1"}, requests=[])

    def request(_pool: Any, *about: Any, **more: Any) -> SimpleNamespace:
        response.requests.append((*about, more["json"], more["headers"]))
        return response

    monkeypatch.setattr(urllib3.PoolManager, "request", request)
    return response


@pytest.fixture
def own_work(answer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The page's module app.py, with the variables that it requires."""
    monkeypatch.setenv("API_URL", "http://127.0.0.1")
    values = {"REQUEST_LEDGER_TABLE_NAME": "ledger", "WORK_QUEUE_LARGEST_MESSAGE": "262144"}
    required, _, optional = REFERENCE.partition("\n## In your own consumer\n")[2].partition("\nOptional are:\n")
    for name in re.findall(r"`([A-Z]+_[A-Z_]+)`", "".join(re.findall(r"^- (`[A-Z].*?`): ", required, re.MULTILINE))):
        monkeypatch.setenv(name, values.get(name, "1"))
    for name in re.findall(r"`([A-Z]+_[A-Z_]+)`", optional):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "true")  # X-Ray is not available
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for module in (observability, retrying_worker, retry):  # Powertools reads its variables in constructors
        importlib.reload(module)
    names: dict[str, Any] = {}
    exec(OWN_WORK, names)
    return names


def test_a_consumer_runs_with_the_variables_that_the_page_requires(
    answer: SimpleNamespace, own_work: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    message = parse_message(MESSAGE.replace("2026-11-21/eu", "注文-1"))
    aws = AwsAccount().use()
    records = [{"messageId": "m", "body": message.to_json(), "messageAttributes": {}, "eventSource": "aws:sqs"}]
    assert own_work["handler"]({"Records": records}, CONTEXT) == {"batchItemFailures": []}
    (row,) = aws.tables.items("ledger")
    assert (row["request_id"]["S"], row["status"]["S"]) == (message.request_id, "SUCCEEDED")
    assert json.loads(row["result"]["S"]) == {"invoice": "i-1"}
    assert '"WorkSucceeded":[1.0]' in capsys.readouterr().out
    headers = {"Idempotency-Key": "%E6%B3%A8%E6%96%87-1"}  # HTTP headers are ASCII
    assert answer.requests == [("POST", "http://127.0.0.1/invoices", message.payload, headers)]


def test_a_corrected_dead_letter_of_the_page_is_the_same_attempt_with_another_payload() -> None:
    before, after = (parse_message(body) for body in CORRECTION.splitlines())
    assert (after.request_id, after.retries) == (before.request_id, before.retries)
    assert (after.attempt, after.payload) == (2, parse_message(MESSAGE).payload)
    assert before.payload_hash != after.payload_hash


def test_the_policy_of_the_page_is_valid() -> None:
    parse_policy(POLICY)


def test_each_kind_of_event_has_a_valid_example() -> None:
    (event,) = [example for example in EVENTS if "detail-type" in example]
    details = [event["detail"], *(example for example in EVENTS if "detail-type" not in example)]
    for detail in details:
        checked({"Source": "slotkeeper", "DetailType": DETAIL_TYPES[detail["status"]], "Detail": detail})
    assert {(detail["flow"], detail["status"]) for detail in details} == {
        (LIMITED_FLOW, "SUCCEEDED"),
        ("worker", "SUCCEEDED"),
        (LIMITED_FLOW, "FAILED"),
        (LIMITED_FLOW, "DEAD_LETTERED"),
        (LIMITED_FLOW, "SKIPPED"),
    }


def test_the_example_of_a_breakers_event_is_valid_and_has_every_field() -> None:
    event = {"Source": BREAKER_EVENT["source"], "DetailType": BREAKER_EVENT["detail-type"]}
    assert checked(event | {"Detail": BREAKER_EVENT["detail"]}).keys() == BREAKER_SCHEMA["properties"].keys()


def test_each_code_of_a_request_that_ends_without_a_start_is_given() -> None:
    section = MESSAGES.partition("### Requests that end without a start\n")[2].partition("\n### ")[0]
    codes = set(re.findall(r"\| `(\w+)` \|", section))
    places = "layers/slotkeeper/slotkeeper/slots/*.py", "cli/slotkeeper_cli/**/*.py"
    code = "".join(file.read_text() for place in places for file in ROOT.glob(place))
    assert codes
    assert [each for each in codes if f'"{each}"' not in code] == []


# What identifies a message on RequestQueue: one sending, or the one message that a message or a task can cause.
SENDINGS = {
    '"$(uuidgen)"',
    "str(uuid4())",
    '"{% $uuid() %}"',
    '"<aws.scheduler.execution-id>"',
    "\"{% $hash($states.context.Task.Token, 'SHA-256') %}\"",
    "delivery.message_id",
}
SENDERS = "*.md docs/*.md examples/*/*.json cli/**/*.py layers/**/*.py dev/scenarios/**/*.* tests/facts/requests.py"
GIVEN = r"""(?:--message-deduplication-id |MessageDeduplicationId(?:"?: |=))(.*?),?(?: \\)?$"""


def test_every_sender_of_requests_identifies_each_sending() -> None:
    """With an id of the request, SQS would drop one that is sent again within five minutes of its end."""
    files = [file for place in SENDERS.split() for file in ROOT.glob(place) if file.suffix in {".md", ".py", ".json"}]
    found = {(str(file), one) for file in files for one in re.findall(GIVEN, file.read_text(), re.MULTILINE)}
    assert {each for each in found if each[1] not in SENDINGS} == set()
    assert {one for _, one in found} == SENDINGS
