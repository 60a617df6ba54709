"""`slotkeeper web`: who may use the console, by the token, the Host and the Origin of a request."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from slotkeeper_cli.web.access import Access, new_token

TOKEN, PORT = "that-of-these-tests", 8123
OWN, LIVE = f"http://127.0.0.1:{PORT}", f"ws://127.0.0.1:{PORT}/live"


async def _echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("open")
    await socket.close()


@pytest.fixture
def browser() -> TestClient:
    routes = [Route("/process/a", lambda _: PlainTextResponse("page")), WebSocketRoute("/live", _echo)]
    return TestClient(Access(Starlette(routes=routes), TOKEN, PORT), base_url=OWN, follow_redirects=False)


def _enter(browser: TestClient) -> None:
    assert browser.get(f"/process/a?token={TOKEN}").status_code == 303


def test_the_token_moves_from_the_address_to_a_cookie_that_only_this_site_can_use(browser: TestClient) -> None:
    moved = browser.get(f"/process/a?token={TOKEN}&tab=holders%26more")
    assert moved.headers["location"] == "/process/a?tab=holders%26more"
    cookie = moved.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert str(PORT) in cookie.partition("=")[0]
    assert browser.get("/process/a").text == "page"


def test_the_redirect_stays_on_this_host(browser: TestClient) -> None:
    moved = browser.get(f"{OWN}//attacker.example/a?token={TOKEN}")
    assert moved.headers["location"] == "/attacker.example/a"


@pytest.mark.parametrize("query", ["", "?token=", "?token=guessed", f"?token={TOKEN[:-1]}", f"?key={TOKEN}"])
def test_without_the_token_nothing_is_shown(browser: TestClient, query: str) -> None:
    refused = browser.get(f"/process/a{query}")
    assert refused.status_code == 403
    assert "page" not in refused.text
    assert "set-cookie" not in refused.headers
    assert "open the address that slotkeeper web printed" in refused.text


@pytest.mark.parametrize("cookie", ["", "=", "a=\x00", f"slotkeeper-{PORT}=guessed", f"slotkeeper-{PORT + 1}={TOKEN}"])
def test_a_cookie_without_the_token_does_not_open_it(browser: TestClient, cookie: str) -> None:
    assert browser.get("/process/a", headers={"cookie": cookie}).status_code == 403


@pytest.mark.parametrize("host", ["attacker.example", f"attacker.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}"])
def test_a_name_of_another_site_that_resolves_to_this_machine_is_refused(browser: TestClient, host: str) -> None:
    _enter(browser)
    assert browser.get("/process/a", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1"])
def test_a_page_of_another_site_can_neither_read_nor_connect(browser: TestClient, origin: str) -> None:
    _enter(browser)
    assert browser.get("/process/a", headers={"origin": origin}).status_code == 403
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(LIVE, headers={"origin": origin}):
        pass


def test_the_console_s_own_pages_can_connect(browser: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(LIVE, headers={"origin": OWN}):
        pass
    _enter(browser)
    with browser.websocket_connect(LIVE, headers={"origin": OWN}) as socket:
        assert socket.receive_text() == "open"


def test_no_two_consoles_have_one_token() -> None:
    assert new_token() != new_token()
    assert len(new_token()) >= 43  # of 32 bytes


def test_no_page_can_be_framed_or_load_from_another_site(browser: TestClient) -> None:
    _enter(browser)
    headers = browser.get("/process/a").headers
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
