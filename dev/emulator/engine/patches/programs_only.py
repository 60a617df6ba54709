"""Requests of browsers, and for other hosts, are refused before MiniStack receives them."""

import os
from functools import partial
from importlib import import_module
from typing import Any

from dev.emulator.engine.emulator import patch, wrap
from dev.emulator.programs_only import REFUSED, refusal


@patch
def programs_only() -> None:
    """A page of a web site can neither call the engine nor read its answers.

    AWS: a call without the signature of an access key is denied ("IAM User Guide: AWS Signature Version 4 for API
    requests"), so that a page cannot use an account. MiniStack checks no signature, and its answers permit every site
    to read them (Access-Control-Allow-Origin).

    The whole application is wrapped, after every other patch, so that nothing answers before this check.
    Shown by tests/deployed/test_programs_only.py.
    """
    application = import_module("ministack.app")
    port, container_host = int(os.environ["GATEWAY_PORT"]), os.environ.get("SLOTKEEPER_ENGINE_CONTAINER_HOST", "")
    wrap(application, "app", partial(_app, port=port, container_host=container_host))
    wrap(application, "_asgi_header_list", _without_cors)


async def _app(original: Any, scope: Any, receive: Any, send: Any, *, port: int, container_host: str) -> None:
    if scope["type"] == "lifespan":  # the server's start and end, which are no request
        await original(scope, receive, send)
        return
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    reason = refusal(headers, port, container_host)
    if reason is None:
        await original(scope, receive, send)
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})  # before the handshake: the server answers 403
    else:
        await send({"type": "http.response.start", "status": REFUSED, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": reason.encode("latin-1")})


def _without_cors(original: Any, headers: Any) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, without those that permit a page of another site to read it."""
    return [(name, value) for name, value in original(headers) if not name.lower().startswith(b"access-control-")]
