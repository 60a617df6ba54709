"""Cases of the chatbot and the refresher: one for each branch with different calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tests.least_privilege.cases import Case, Item, number, put
from tests.least_privilege.recording import Recorded
from tests.least_privilege.resolved_template import Stack
from tests.support.cold_functions import RESPONSE_URL
from tests.support.http_servers import Listener, ok
from tests.support.in_process_tables import TOKENS

KEY = "a key that is long enough"
TOKEN = {"token_name": {"S": "chatbot"}, "access_token": {"S": "t"}, "generation": {"N": "7"}, "stored_at": {"N": "1"}}
EXPIRED = {"refresh_lock": {"M": {"release_code": {"S": "code-1"}, "expires": {"N": "1700000000.000"}}}}


def _secrets(stack: Stack, *items: Item) -> Callable[[Recorded], None]:
    def arrange(account: Recorded) -> None:
        put(TOKENS, *items)(account)
        known = {"client_id": "bot", "client_secret": "secret"}
        account.secrets[stack.arn("ApiCredentialsSecret")] = {"SecretString": json.dumps(known)}
        account.secrets[stack.arn("SigningKeySecret")] = {"SecretString": json.dumps({"signing_key": KEY})}

    return arrange


def chatbot(stack: Stack, api: Listener) -> Iterator[Case]:
    def refusing(*items: Item) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            _secrets(stack, *items)(account)
            api.answers |= dict.fromkeys(("/answers", "/me"), b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")

        return arrange

    def answering(account: Recorded) -> None:
        _secrets(stack, TOKEN)(account)
        api.answers |= {"/answers": ok(b'{"answer": "hello yourself"}')}

    body, now = json.dumps({"message_id": "m1", "text": "hello"}), int(time.time())
    event = {
        "resource": "/messages",
        "path": "/messages",
        "httpMethod": "POST",
        "headers": {TIMESTAMP_HEADER: str(now), SIGNATURE_HEADER: sign(KEY, now, body)},
        "requestContext": {"requestId": "gateway-1", "stage": "v1", "identity": {"sourceIp": "127.0.0.1"}},
        "body": body,
        "isBase64Encoded": False,
    }
    yield Case("ChatbotFunction", "a message", event, answering)
    yield Case("ChatbotFunction", "an invalid token", event, refusing(TOKEN))
    yield Case("ChatbotFunction", "no token yet", event, refusing())
    yield Case("ChatbotFunction", "an expired lock", event, refusing(TOKEN | EXPIRED))


def token_refresher(stack: Stack) -> Iterator[Case]:
    deployment = {
        "RequestType": "Create",
        "ResponseURL": RESPONSE_URL,
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "TokenAtDeployment",
        "ResourceProperties": {},
    }
    locked = {"refresh_lock": {"M": {"release_code": {"S": "code-1"}, "expires": number(time.time() + 9)}}}
    function = "TokenRefresherFunction"
    yield Case(function, "the schedule", {}, _secrets(stack, TOKEN))
    yield Case(function, "no token yet", deployment, _secrets(stack))
    yield Case(function, "a delegated refresh", {"release_code": "code-1"}, _secrets(stack, TOKEN | locked))
    yield Case(function, "an expired lock", {}, _secrets(stack, TOKEN | EXPIRED))
