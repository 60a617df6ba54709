"""Who may use the console: the browser that was opened with the access token, and no page of another site."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_FIELD = "token"  # noqa: S105 - the name of a field
# The page cannot be framed, sends its address to no other site, and loads nothing from one. Vue compiles templates in
# the page, for which it needs eval.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'self'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


class Access:
    """Lets requests pass that have the token, and whose Host and Origin are the console's own address.

    The token is in the address once, as Jupyter has it. The answer moves it to a cookie that no other site's page can
    use, and that no script can read, and redirects to the address without it. Host is checked because a name of another
    site may resolve to 127.0.0.1 (DNS rebinding); Origin because a page of another site can open a WebSocket.

    Args:
        port: the console's. Cookies are shared by all ports of a host, so the cookie's name contains it.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost")}
        self._cookie = f"slotkeeper-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it. A WebSocket is refused by an answer in place of the handshake."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._answer(scope)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http":
            refusal.headers.update(HEADERS)
            await refusal(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a request that may not pass, or whose token moves to the cookie; None if it may pass."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("The console answers only at the address that slotkeeper web printed.", 403)
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return PlainTextResponse("The console does not answer to pages of other sites.", 403)
        if _is_equal(_cookies(headers).get(self._cookie, ""), self._token):
            return None
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if scope["type"] == "http" and _is_equal(query.pop(TOKEN_FIELD, ""), self._token):
            rest = f"?{urlencode(query)}" if query else ""
            # With two slashes in front it would be an address of another host.
            moved = RedirectResponse(f"/{scope['path'].lstrip('/')}{rest}", 303)
            moved.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return moved
        return PlainTextResponse(
            "The access token is missing or not of this console: open the address that slotkeeper web printed.", 403
        )


def _is_equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _cookies(headers: Headers) -> Mapping[str, str]:
    try:
        cookie: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
    except Exception:  # what a browser sends is no error of the console
        return {}
    return {name: morsel.value for name, morsel in cookie.items()}


def _with_headers(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return answer
