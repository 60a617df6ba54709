"""A page of a web site can neither call what the project serves on this machine, nor read its answers."""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import urlencode, urlsplit

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import INVALIDATE
from dev.emulator.downstream import Downstream
from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.engine.patches import programs_only
from dev.emulator.environment import ROOT
from dev.emulator.programs_only import refusal
from tests.waiting import NEVER

SITE = "site.localhost"  # a browser gives such a name the address 127.0.0.1, as DNS rebinding does
CONTAINER_HOST = "127.0.0.2" if sys.platform == "linux" else ""
FUNCTIONS = "/2015-03-31/functions"
CALLS = (("OPTIONS", "/"), ("GET", FUNCTIONS), ("GET", "/bucket/key"), ("POST", INVALIDATE))
REFUSED = {
    "a POST of another site": {"Origin": f"http://{SITE}"},
    "an image from 127.0.0.1": {"sec-fetch-site": "cross-site"},
    "an image from Docker's bridge": {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"},
    "DNS rebinding": {"Host": f"{SITE}:80"},
    "another port": {"Host": "127.0.0.1:80"},
}
# What DynamoDB Local requires of a call. To send such headers to another site, a browser first asks by OPTIONS.
CALL = {
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/b/dynamodb/aws4_request, SignedHeaders=host, Signature=c",
}
# Browsers send POSTs of text to another site without asking it first. These create a function and call it.
ATTACK = """async ([functions, code]) => {
  const post = (url, body) => fetch(url, {method: "POST", body: JSON.stringify(body)}).catch(String);
  await post(functions, code);
  await post(functions + "/f/invocations", {});
}"""


def code(mark: Path) -> dict[str, Any]:
    """A function that creates the file `mark`."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("app.py", f"def handler(event, context):\n    open({str(mark)!r}, 'w').close()\n")
    source = {"ZipFile": base64.b64encode(zipped.getvalue()).decode()}
    return {"FunctionName": "f", "Runtime": "python3.13", "Role": "r", "Handler": "app.handler", "Code": source}


def send(url: str, method: str, path: str, headers: dict[str, str], body: bytes = b"{}") -> http.client.HTTPResponse:
    """The answer to a request, whose Host is that of `url` unless it is given."""
    at = urlsplit(url)
    with closing(http.client.HTTPConnection(str(at.hostname), at.port, timeout=NEVER)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer


def test_the_engine_and_the_chat_api_answer_programs_only(tmp_path: Path) -> None:
    with EmbeddedAws.start(tmp_path, chat_service=True, downstream=True, container_host=CONTAINER_HOST) as aws:
        downstream = Downstream(tmp_path)
        downstream.follow({"key": []})  # its calls are recorded
        servers = [aws.endpoint, str(aws.chat_service)]
        servers += [url.replace("127.0.0.1", CONTAINER_HOST) for url in servers if CONTAINER_HOST]
        for url in servers:
            for headers in REFUSED.values():
                assert send(url, "POST", FUNCTIONS, headers, json.dumps(code(tmp_path)).encode()).status == 403, headers
                for call in (*CALLS, ("POST", "/_ministack/reset")):
                    assert send(url, *call, headers).status == 403, (url, call, headers)
        assert downstream.calls() == []
        for url in servers:
            for host in (urlsplit(url).netloc, f"LocalHost:{urlsplit(url).port}"):
                for call in CALLS:
                    answer = send(url, *call, {"Host": host})
                    assert answer.status != 403, (url, call)
                    assert "access-control" not in str(answer.headers).lower(), (url, call)
        assert {call.key for call in downstream.calls()} == {"key"}
        assert aws.client("lambda").list_functions()["Functions"] == []


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1:1", f"{SITE}:1"]])
def test_a_request_has_one_host(hosts: list[str]) -> None:
    assert refusal([("Host", host) for host in hosts], 1) is not None


def test_fetch_of_nodejs_is_a_program() -> None:
    assert refusal([("Host", "127.0.0.1:1"), ("Sec-Fetch-Mode", "cors"), ("User-Agent", "node")], 1) is None


def test_a_websocket_of_a_page_ends_before_its_handshake() -> None:
    original, send = AsyncMock(), AsyncMock()
    scope = {"type": "websocket", "headers": [(b"host", b"127.0.0.1:1"), (b"origin", b"http://127.0.0.1:1")]}
    asyncio.run(programs_only._app(original, scope, None, send, port=1, container_host=""))
    original.assert_not_called()
    send.assert_awaited_once_with({"type": "websocket.close"})


@pytest.mark.parametrize("without", ["", "programs_only"])
def test_a_page_in_a_browser_runs_code_only_without_the_check(browser: Any, tmp_path: Path, without: str) -> None:
    mark = tmp_path / "mark"
    environment = {"SLOTKEEPER_ENGINE_WITHOUT": without}
    with EmbeddedAws.start(tmp_path / "engine", environment=environment) as aws:
        page = browser.new_page()
        page.goto(aws.endpoint.replace("127.0.0.1", SITE))
        page.evaluate(ATTACK, [aws.endpoint + FUNCTIONS, code(mark)])
        read = page.evaluate("async (path) => (await fetch(path)).status", FUNCTIONS)
        assert (mark.exists(), read) == ((True, 200) if without else (False, 403))


def test_a_page_can_neither_call_dynamodb_local_nor_read_its_answers(tmp_path: Path) -> None:
    with DynamoDbLocal.start(tmp_path / "dynamodb.log") as local:
        assert send(local.endpoint, "POST", "/", CALL).status == 200
        assert send(local.endpoint, "POST", "/", {"Host": SITE, **CALL}).status == 404
        for path in ("/", f"/?{urlencode(CALL)}"):
            assert send(local.endpoint, "POST", path, {}).status == 400
        for origin in (f"http://{SITE}", "http://127.0.0.1", local.endpoint, "null"):
            asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            for method in ("OPTIONS", "POST"):
                answer = send(local.endpoint, method, "/", CALL | asked)
                assert answer.headers["Access-Control-Allow-Origin"] is None, (method, origin)


def test_each_handler_of_http_requests_has_the_check() -> None:
    sources = {path for folder in ("dev", "tests") for path in (ROOT / folder).rglob("*.py")} - {Path(__file__)}
    bare = [path for path in sources if "(BaseHTTPRequestHandler)" in path.read_text()]
    assert bare == [ROOT / "dev" / "emulator" / "programs_only.py"]
