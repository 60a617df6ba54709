"""The answer to CloudFormation: its deadline, its repetition after an error, and its log."""

from __future__ import annotations

import json

import pytest
import urllib3

from slotkeeper.aws import custom_resource
from tests.http_servers import Listener, http

EVENT = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "Process"}
SIGNED = "X-Amz-Signature=a-secret"


LARGEST_RESPONSE = 4096  # bytes (CloudFormation guide, "Custom resource response objects")


def answer(server: Listener, failed: str = "") -> None:
    event = EVENT | {"ResponseURL": f"{server.url}/answer?{SIGNED}"}
    custom_resource.answer(event, "id", failed=failed, data={"Generation": "1"})


def test_a_long_reason_is_cut_to_what_cloudformation_accepts() -> None:
    with Listener(http(b"", "200 OK", "Connection: close")) as server:
        answer(server, failed="\u540d" * 5000)
    body = server.received.partition(b"\r\n\r\n")[2]
    assert json.loads(body)["Reason"].startswith("\u540d\u540d")
    assert len(body) <= LARGEST_RESPONSE


def test_all_tries_share_the_time_of_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_resource, "ANSWER_SECONDS", 0.4)
    shares: list[float] = []
    request = urllib3.PoolManager.request

    def noted(self: urllib3.PoolManager, *about: object, timeout: urllib3.Timeout, **more: object) -> object:
        shares.append(timeout.total)  # type: ignore[arg-type]
        return request(self, *about, timeout=timeout, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(urllib3.PoolManager, "request", noted)
    with Listener(b"", pause=0.05, endless=True) as server, pytest.raises(urllib3.exceptions.HTTPError) as failed:
        answer(server)
    assert sum(shares) == pytest.approx(0.4)
    assert (len(shares), server.connections >= 1) == (custom_resource.ANSWER_TRIES, True)
    assert SIGNED not in str(failed.value)


@pytest.mark.parametrize(("status", "tries"), [("403 Forbidden", 1), ("503 Slow Down", custom_resource.ANSWER_TRIES)])
def test_a_refused_answer_is_logged_without_the_url_and_repeated_after_a_server_error(
    monkeypatch: pytest.MonkeyPatch, status: str, tries: int
) -> None:
    logged: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(custom_resource.logger, "error", lambda text, **fields: logged.append((text, fields)))
    with Listener(http(b"", status, "Connection: close")) as server:
        answer(server)
    assert [fields for _, fields in logged] == [{"status": int(status[:3])}]
    assert SIGNED not in logged[0][0]
    assert server.connections == tries
