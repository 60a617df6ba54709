"""Who may use the console: the browser that was opened with the access token, and no page of another site."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from html import escape
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_FIELD = "token"  # noqa: S105 - the name of a field
COOKIE = "slotkeeper"
# The page cannot be framed, sends its address to no other site, and loads nothing from one. Vue compiles templates in
# the page, for which it needs eval.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; "
        "base-uri 'self'; form-action 'self'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def leading_to(address: str) -> str:
    """A page that takes the browser to an address."""
    return f'<!doctype html><title>Slotkeeper</title><meta http-equiv="refresh" content="0;url={escape(address)}">'


class Entrance:
    """The address that opens the console once, for one browser; then there is a new one for the next browser.

    Attributes:
        folder: the path below which the console's pages are. A browser sends a cookie to every port of a host, so the
            cookie is for this path, which no server on another port knows (RFC 6265, section 8.5).
        session: the value of that cookie.

    Args:
        origin: scheme, host and port.
        entered: called after a browser has used the address.
    """

    def __init__(self, origin: str, entered: Callable[[], None]) -> None:
        self._origin, self._entered = origin, entered
        self.folder, self.session, self._token = f"/{new_token()}", new_token(), new_token()

    @property
    def address(self) -> str:
        """The address. It admits its first reader, so the operator alone may receive it."""
        return f"{self._origin}{self.folder}/?{TOKEN_FIELD}={self._token}"

    def admits(self, token: str) -> bool:
        """Whether the token is that of the address, which it is once."""
        if is_admitted := _is_equal(token, self._token):
            self._token = new_token()
            self._entered()
        return is_admitted


class Access:
    """Lets requests pass that have the cookie, and whose Host and Origin are the console's own address.

    The token of an `Entrance` is exchanged for the cookie, which no other site's page can use and no script can read.
    Host is checked because a name of another site may resolve to 127.0.0.1 (DNS rebinding); Origin because a page of
    another site can open a WebSocket.

    Args:
        port: the console's.
    """

    def __init__(self, app: ASGIApp, entrance: Entrance, port: int) -> None:
        self._app, self._entrance = app, entrance
        self._hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it. A WebSocket is refused by an answer in place of the handshake."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope)
        if answer is None:
            await self._app({**scope, "root_path": self._entrance.folder}, receive, _with_headers(send))
        elif scope["type"] == "http":
            answer.headers.update(HEADERS)
            await answer(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a request that may not pass, or whose address has a token; None if it may pass."""
        asked = HTTPConnection(scope)
        headers = asked.headers
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("The console answers only at the address that slotkeeper web printed.", 403)
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return PlainTextResponse("The console does not answer to pages of other sites.", 403)
        is_known = _is_equal(asked.cookies.get(COOKIE, ""), self._entrance.session)
        query = dict(asked.query_params)
        token = query.pop(TOKEN_FIELD, None)
        if scope["path"].startswith(f"{self._entrance.folder}/"):
            if is_known and token is None:
                return None
            # HEAD, as of a program that previews addresses, does not use the token up.
            if token is not None and scope.get("method") == "GET" and (is_known or self._entrance.admits(token)):
                return self._without_token(scope["path"], query)
        return PlainTextResponse(
            "This address does not open the console: an address of slotkeeper web opens it once, in one browser. Open "
            "the newest one that it printed, or start it again.",
            403,
        )

    def _without_token(self, path: str, query: Mapping[str, str]) -> Response:
        """Take the browser to the address without the token.

        Not a redirect: in one that began at a file or another program's page the browser would send no cookie that is
        SameSite=Strict (RFC 6265bis, section 5.2). A page of the console's own leads there.
        """
        moved = HTMLResponse(leading_to(quote(path) + (f"?{urlencode(query)}" if query else "")))
        folder = f"{self._entrance.folder}/"
        moved.set_cookie(COOKIE, self._entrance.session, path=folder, httponly=True, samesite="strict")
        return moved


def _is_equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _with_headers(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return answer
