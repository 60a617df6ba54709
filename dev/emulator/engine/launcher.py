"""Checks the version, applies the patches, ties the process to its parent, and runs MiniStack."""

import importlib.metadata
import logging
import os
import sys
import threading
from importlib import import_module

from dev.emulator import processes
from dev.emulator.chat_service import ChatService
from dev.emulator.chat_service.chat_api_stand_in import ANSWER_LATENCY, AUTH_LATENCY, CLIENT_SECRET
from dev.emulator.engine import patches

MINISTACK_VERSION = "1.5.33"  # a test holds it to requirements/local.in
log = logging.getLogger("slotkeeper.engine")


def main() -> None:
    """Run the engine in this process until it is told to end."""
    check_version(importlib.metadata.version("ministack"))
    if os.environ.get("SLOTKEEPER_ENGINE_TIED") == "1":
        threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    # Threads that take turns more often than Python's 5 ms show a race sooner: the tests of the locks ask for it.
    sys.setswitchinterval(float(os.environ.get("SLOTKEEPER_ENGINE_SWITCH_SECONDS", sys.getswitchinterval())))
    without = {name for name in os.environ.get("SLOTKEEPER_ENGINE_WITHOUT", "").split(",") if name}
    os.environ.pop("PYTHONPATH", None)  # it brought us here; functions and scripts must not find the project by it
    patches.apply_all(without)
    if port := os.environ.pop("SLOTKEEPER_CHAT_SERVICE_PORT", ""):
        _serve_chat_api(int(port))
    sys.argv = sys.argv[:1]  # MiniStack parses the command line too
    # Imported after the patches are in: it binds some handlers while it is imported.
    import_module("ministack.app").main()


def check_version(installed: str) -> None:
    """The patches reach into private functions, so they hold for one version only."""
    if installed != MINISTACK_VERSION:
        raise SystemExit(
            f"the embedded AWS needs ministack {MINISTACK_VERSION}, but {installed} is installed: "
            "install requirements/local.txt, or check every patch in engine/patches against the new version"
        )


def _serve_chat_api(port: int) -> None:
    """The chat API's stand-in, on a thread of this process: whatever ends the engine ends it too."""
    ChatService(
        port=port, client_secret=CLIENT_SECRET, auth_latency=AUTH_LATENCY, answer_latency=ANSWER_LATENCY
    ).start()


def _end_with_parent() -> None:
    """Wait for the parent's end of the pipe to close, then kill the session. A byte means: continue without it."""
    if not os.read(0, 1):
        processes.end_session(os.getpid())
        os._exit(0)
