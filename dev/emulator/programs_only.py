"""Which requests the servers of this project refuse on a developer's machine: those of a browser or for another host.

A page of any web site can send requests to this machine, and the engine runs the code that a request contains.

- A browser marks its requests with Origin (Fetch standard, "`Origin` header"), or if they are for a loopback address,
  with Sec-Fetch-Site (W3C, "Fetch Metadata Request Headers"). Its User-Agent begins with Mozilla (MDN, "User-Agent
  header"). `fetch` of Node.js, which sends Sec-Fetch-Mode alone, is a program.
- A site can give its own host name the address 127.0.0.1 (DNS rebinding). Then the browser sees a request of that site
  to itself, and sends no Origin with a GET. Host contains the site's name.
"""

from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

REFUSED = HTTPStatus.FORBIDDEN


def refusal(headers: Iterable[tuple[str, str]], port: int) -> str | None:
    """Why a server on `port` refuses a request with these headers; None for the request of a program."""
    given = [(name.lower(), value) for name, value in headers]
    for name, value in given:
        if name in ("origin", "sec-fetch-site") or (name == "user-agent" and value.startswith("Mozilla/")):
            return f"A browser sent this request: it has {name}. Expected a program, such as an SDK. Nothing was done."
    expected = [f"{host}:{port}" for host in ("127.0.0.1", "localhost")]
    hosts = [value.lower() for name, value in given if name == "host"]
    if len(hosts) != 1 or hosts[0] not in expected:
        return f"Host is {', '.join(hosts) or 'missing'}. Expected {' or '.join(expected)}. Nothing was done."
    return None


class ProgramsOnlyHandler(BaseHTTPRequestHandler):
    """Answers what `refusal` refuses with 403, in place of calling the method of the request."""

    server: HTTPServer

    def parse_request(self) -> bool:
        """Parse the request. False if it has been answered already."""
        if not super().parse_request():
            return False
        if reason := refusal(self.headers.items(), self.server.server_port):
            self.send_error(REFUSED, explain=reason)
            return False
        return True
