"""Receive a custom resource's responses to CloudFormation, on 127.0.0.1."""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any, Self

from dev.emulator.programs_only import ProgramsOnlyHandler


class ResponseReceiver:
    """A context manager that stores the responses that are PUT to `url`."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self.answers))
        self.url = f"http://127.0.0.1:{self._server.server_port}/cloudformation"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(ProgramsOnlyHandler):
    def __init__(self, answers: list[dict[str, Any]], *connection: Any) -> None:
        self._answers = answers
        super().__init__(*connection)

    def do_PUT(self) -> None:
        self._answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
