"""`slotkeeper web`: who may use the console, by the token, the cookie, the Host and the Origin of a request."""

from __future__ import annotations

import re
from html import unescape

import pytest
from httpx import Response
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from slotkeeper_cli.web.access import COOKIE, Access, Entrance, new_token

PORT = 8123
OWN = f"http://127.0.0.1:{PORT}"


async def _echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("open")
    await socket.close()


class Browser(TestClient):
    """A browser, in which addresses without a slash in front are those of the console's pages."""

    def __init__(self, entrance: Entrance) -> None:
        routes = [Route("/process/a", lambda _: PlainTextResponse("page")), WebSocketRoute("/live", _echo)]
        super().__init__(Access(Starlette(routes=routes), entrance, PORT), base_url=f"{OWN}{entrance.folder}")
        self.entrance, self.live = entrance, f"ws://127.0.0.1:{PORT}{entrance.folder}/live"

    @property
    def token(self) -> str:
        return self.entrance.address.partition("=")[2]

    def enter(self) -> None:
        assert "set-cookie" in self.get(self.entrance.address).headers


@pytest.fixture
def browser() -> Browser:
    return Browser(Entrance(OWN, lambda: None))


def _next(moved: Response) -> str:
    """Where an answer takes the browser."""
    assert moved.status_code == 200
    (address,) = re.findall('content="0;url=([^"]*)"', moved.text)
    return unescape(address)


def test_the_token_is_exchanged_for_a_cookie_that_only_this_site_can_use(browser: Browser) -> None:
    moved = browser.get(f"process/a?tab=holders%26more&token={browser.token}")
    assert _next(moved) == f"{browser.entrance.folder}/process/a?tab=holders%26more"
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in moved.headers["set-cookie"].split(";")}
    assert browser.get(f"{OWN}{_next(moved)}").text == "page"


def test_an_address_opens_the_console_once(browser: Browser) -> None:
    used = browser.entrance.address
    assert browser.head(used).status_code == 403  # as of a program that previews addresses
    browser.enter()
    other = Browser(browser.entrance)
    assert other.get(used).status_code == 403
    other.enter()


@pytest.mark.parametrize("token", ["", "guessed", "used"])
def test_no_address_of_a_page_keeps_a_token(browser: Browser, token: str) -> None:
    used = browser.token
    browser.enter()
    moved = browser.get(f"process/a?token={used if token == 'used' else token}")
    assert _next(moved) == f"{browser.entrance.folder}/process/a"


def test_the_cookie_is_sent_to_no_server_on_another_port(browser: Browser) -> None:
    browser.enter()
    assert browser.entrance.session in browser.build_request("GET", "process/a").headers["cookie"]
    for path in ("/", "/process/a", f"/{new_token()}/process/a"):
        assert "cookie" not in browser.build_request("GET", f"http://127.0.0.1:{PORT + 1}{path}").headers


def test_a_page_is_shown_only_below_the_folder(browser: Browser) -> None:
    cookie = {"cookie": f"{COOKIE}={browser.entrance.session}"}
    assert browser.get("process/a", headers=cookie).text == "page"
    for path in ("/process/a", f"/{new_token()}/process/a", f"{browser.entrance.folder}process/a"):
        assert browser.get(f"{OWN}{path}", headers=cookie).status_code == 403


@pytest.mark.parametrize("query", ["", "?token=", "?token=guessed", "?token={token:.42}", "?key={token}"])
def test_without_the_token_nothing_is_shown(browser: Browser, query: str) -> None:
    refused = browser.get("process/a" + query.format(token=browser.token))
    assert refused.status_code == 403
    assert "page" not in refused.text
    assert "set-cookie" not in refused.headers
    assert "Open the newest one that it printed" in refused.text


@pytest.mark.parametrize("cookie", ["", "=", "a=\x00", f"{COOKIE}=guessed", f"{COOKIE}={{token}}", "other={session}"])
def test_another_cookie_does_not_open_it(browser: Browser, cookie: str) -> None:
    sent = cookie.format(token=browser.token, session=browser.entrance.session)
    assert browser.get("process/a", headers={"cookie": sent}).status_code == 403


@pytest.mark.parametrize("host", ["attacker.example", f"attacker.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}"])
def test_a_name_of_another_site_that_resolves_to_this_machine_is_refused(browser: Browser, host: str) -> None:
    browser.enter()
    assert browser.get("process/a", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1"])
def test_a_page_of_another_site_can_neither_read_nor_connect(browser: Browser, origin: str) -> None:
    browser.enter()
    assert browser.get("process/a", headers={"origin": origin}).status_code == 403
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(browser.live, headers={"origin": origin}):
        pass


def test_the_console_s_own_pages_can_connect(browser: Browser) -> None:
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(browser.live, headers={"origin": OWN}):
        pass
    browser.enter()
    with browser.websocket_connect(browser.live, headers={"origin": OWN}) as socket:
        assert socket.receive_text() == "open"


def test_no_two_consoles_have_one_token() -> None:
    assert new_token() != new_token()
    assert len(new_token()) >= 43  # of 32 bytes


def test_no_page_can_be_framed_or_load_from_another_site(browser: Browser) -> None:
    for each in (browser.get(browser.entrance.address), browser.get("process/a")):
        assert each.headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in each.headers["content-security-policy"]
        assert each.headers["referrer-policy"] == "no-referrer"
