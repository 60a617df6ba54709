"""The chatbot answers any request, with any answer of the API, with a documented status, and reveals no secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tests.http_servers import Listener, ok
from tests.profiles import share
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.cold_functions import Functions, Ran, invocation
from tests.simulation.account.items import TOKENS
from tests.unit.fuzz.strategies import bodies, values

NOW = 1_800_000_000
KEY, CLIENT_SECRET = "canary-signing-key-4711", "canary-client-secret-0815"
TOKEN, NEW_TOKEN = "canary-token-1", "canary-token-2"
CANARIES = (KEY, CLIENT_SECRET, TOKEN, NEW_TOKEN)
VALID = {"message_id": "m1", "text": "hello", "conversation": "c"}
# The chatbot's documented statuses.
STATUSES = {200, 400, 401, 404, 405, 413, 500, 502, 503}
ITEM = {
    "token_name": {"S": "chatbot"},
    "access_token": {"S": TOKEN},
    "generation": {"N": "7"},
    "stored_at": {"N": "1700000000"},
}


@pytest.fixture(scope="module")
def api() -> Iterator[Listener]:
    with Listener() as made:
        yield made


class World:
    """A chatbot, its secrets and its token, all of them canaries."""

    def __init__(self, functions: Functions, api: Listener) -> None:
        self.functions = functions
        self.api = api

    def new(self) -> AwsAccount:
        account = self.functions.new_account()
        account.secrets["signing"] = {"SecretString": json.dumps({"signing_key": KEY})}
        known = {"client_id": "bot", "client_secret": CLIENT_SECRET}
        account.secrets["credentials"] = {"SecretString": json.dumps(known)}
        account.tables.put(TOKENS, ITEM)
        self.api.requests.clear()
        self.api.answers = {
            "/auth": ok(json.dumps({"access_token": NEW_TOKEN}).encode()),
            "/me": ok(b"{}"),
            "/answers": ok(b'{"answer": "hello yourself"}'),
        }
        return account

    def ask(self, body: str, *, encoded: bool = False) -> Ran:
        """The answer to a signed message, as API Gateway passes it."""
        event = {
            "resource": "/messages",
            "path": "/messages",
            "httpMethod": "POST",
            "headers": {TIMESTAMP_HEADER: str(NOW), SIGNATURE_HEADER: sign(KEY, NOW, body)},
            "requestContext": {"requestId": "gateway-1", "stage": "v1"},
            "body": base64.b64encode(body.encode()).decode() if encoded else body,
            "isBase64Encoded": encoded,
        }
        module = self.functions.load("chatbot")
        module._chatbot.clock = lambda: float(NOW)
        ran = self.functions.run(module, event, invocation())
        assert ran.raised is None, ran
        assert ran.answer["statusCode"] in STATUSES, ran
        assert not ran.answer["isBase64Encoded"]
        json.loads(ran.answer["body"])
        for canary in CANARIES:
            assert canary not in json.dumps(ran.answer, default=str) + ran.logged, canary
        return ran


@pytest.fixture
def world(functions: Functions, api: Listener, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("CHAT_API_URL", api.url)
    return World(functions, api)


@given(body=bodies(VALID), encoded=st.booleans())
def test_a_signed_request_with_any_body_is_answered_or_refused(world: World, body: str, encoded: bool) -> None:
    world.new()
    ran = world.ask(body, encoded=encoded)
    assert ran.answer["statusCode"] in {200, 400, 413}
    assert (ran.answer["statusCode"] == 200) == any(
        request.startswith(b"POST /answers") for request in world.api.requests
    )


_header_lines = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: -1",
        b"Content-Length: 1, 2",
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
        b"Content-Encoding: br, gzip, zstd, deflate",
        b"Location: /elsewhere",
        b"Location: http://[" + TOKEN.encode() + b"]/",
        b"Location: http://" + NEW_TOKEN.encode() + b"\xbd/@#?:",
        b"Retry-After: 99999",
        b"Retry-After: " + b"9" * 5000,
        b"Set-Cookie: " + TOKEN.encode(),
        b"no header",
        b"",
    ]
)
_statuses = st.sampled_from([200, 200, 200, 201, 204, 301, 302, 307, 400, 401, 403, 404, 429, 500, 503, 100, 999])


@st.composite
def raw_answers(draw: st.DrawFn, about: dict[str, Any]) -> bytes:
    """An HTTP answer, possibly malformed. `about`: the content of a correct one."""
    content = json.dumps(draw(st.just(about) | values)).encode()
    body = draw(st.just(content) | st.binary(max_size=200) | st.sampled_from([b"[" * 100_000, b"x" * 1_000_001]))
    if draw(st.integers(0, 9)) == 0:
        return draw(st.just(b"") | st.binary(max_size=200))
    lines = draw(st.lists(_header_lines, max_size=3))
    if draw(st.booleans()):
        lines.append(b"Content-Length: %d" % len(body))
    # It contains the token of the request wherever possible.
    start = b"HTTP/1.1 %d canary-token-1" % draw(_statuses)
    return b"\r\n".join([start, *lines, b"", body])


@share(0.5)
@given(
    answers=raw_answers({"answer": "hello yourself"}),
    auth=st.none() | raw_answers({"access_token": NEW_TOKEN}),
    me=st.none() | raw_answers({}),
)
@example(answers=b"HTTP/1.1 302 Found\r\nLocation: http://[canary-token-1]/\r\n\r\n", auth=None, me=None)
@example(answers=b"HTTP/1.1 400 Bad\r\nno header\r\nSet-Cookie: canary-token-1\r\n\r\n", auth=None, me=None)
def test_any_answer_of_the_api_gives_the_caller_an_answer_without_secrets(
    world: World, answers: bytes, auth: bytes | None, me: bytes | None
) -> None:
    world.new()
    answers_of_route = {"/answers": answers, "/auth": auth, "/me": me}
    world.api.answers |= {path: raw for path, raw in answers_of_route.items() if raw is not None}
    # The caller gets the API's answer text, which contains no canary here.
    ran = world.ask(json.dumps(VALID))
    assert ran.answer["statusCode"] in {200, 502, 503}
    # One for the stored token, and one for a new token that is dead from the start.
    assert len([request for request in world.api.requests if request.startswith(b"POST /auth")]) <= 2
