"""Which requests the servers of this project refuse on a developer's machine: those of a browser or for another host.

A page of any web site can send requests to this machine, and the engine runs the code that a request contains.

- A browser marks its requests with Origin (Fetch standard, "`Origin` header"), or if they are for a loopback address,
  with Sec-Fetch-Site (W3C, "Fetch Metadata Request Headers"). A GET to Docker's bridge has neither, but the User-Agent
  of a browser, which begins with Mozilla (MDN, "User-Agent header"). `fetch` of Node.js, which
  sends Sec-Fetch-Mode alone, is a program.
- A site can give its own host name the address 127.0.0.1 (DNS rebinding). Then the browser sees a request of that site
  to itself, and sends no Origin with a GET. Host contains the site's name.
"""

from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

REFUSED = HTTPStatus.FORBIDDEN


def refusal(headers: Iterable[tuple[str, str]], port: int, container_host: str = "") -> str | None:
    """Why a server refuses a request with these headers; None for the request of a program.

    Args:
        port: the server's.
        container_host: the host by which containers reach it, an address of this machine or `host.docker.internal`;
            "" if they cannot. No site can have such a name.
    """
    given = [(name.lower(), value) for name, value in headers]
    for name, value in given:
        if name in ("origin", "sec-fetch-site") or (name == "user-agent" and value.startswith("Mozilla/")):
            return f"A browser sent this request: it has {name}. Expected a program, such as an SDK. Nothing was done."
    expected = [f"{host}:{port}" for host in ("127.0.0.1", "localhost", container_host) if host]
    hosts = [value.lower() for name, value in given if name == "host"]
    if len(hosts) != 1 or hosts[0] not in expected:
        return f"Host is {', '.join(hosts) or 'missing'}. Expected {' or '.join(expected)}. Nothing was done."
    return None


class ProgramsOnlyHandler(BaseHTTPRequestHandler):
    """Answers what `refusal` refuses with 403, in place of calling the method of the request."""

    server: HTTPServer

    @property
    def container_host(self) -> str:
        """As in `refusal`."""
        return ""

    def parse_request(self) -> bool:
        """Parse the request. False if it has been answered already."""
        if not super().parse_request():
            return False
        if reason := refusal(self.headers.items(), self.server.server_port, self.container_host):
            self.send_error(REFUSED, explain=reason)
            return False
        return True
