"""Check MiniStack's version, apply the patches, end with the parent process, and run MiniStack."""

import importlib.metadata
import os
import sys
import threading
from importlib import import_module

from dev.emulator import docker_bridge, processes
from dev.emulator.chat_service import ANSWER_LATENCY, AUTH_LATENCY, CLIENT_SECRET, ChatService
from dev.emulator.engine import patches, relay

MINISTACK_VERSION = "1.5.33"  # a test compares it with requirements/local.in


def main() -> None:
    """Run the engine in this process until a signal ends it."""
    check_version(importlib.metadata.version("ministack"))
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    # Tests of the locks switch threads more often than after Python's 5 ms, to find a race sooner.
    sys.setswitchinterval(float(os.environ.get("SLOTKEEPER_ENGINE_SWITCH_SECONDS", sys.getswitchinterval())))
    without = {name for name in os.environ.get("SLOTKEEPER_ENGINE_WITHOUT", "").split(",") if name}
    os.environ.pop("PYTHONPATH", None)  # functions and scripts must not import the project
    patches.apply_all(without)
    container_host = os.environ.pop("SLOTKEEPER_ENGINE_CONTAINER_HOST", "")
    ports = [int(os.environ["GATEWAY_PORT"])]
    if port := os.environ.pop("SLOTKEEPER_CHAT_SERVICE_PORT", ""):
        ports.append(int(port))
        _serve_chat_api(int(port), container_host)
    if container_host and (address := docker_bridge.listening_address(container_host)):
        relay.listen(address, ports)
    sys.argv = sys.argv[:1]  # MiniStack parses the command line too
    # Imported after the patches, because the import binds some handlers.
    import_module("ministack.app").main()


def check_version(installed: str) -> None:
    """Raise SystemExit for another version: the patches replace private functions."""
    if installed != MINISTACK_VERSION:
        raise SystemExit(
            f"the embedded AWS needs ministack {MINISTACK_VERSION}, but {installed} is installed: "
            "install requirements/local.txt, or check every patch in engine/patches against the new version"
        )


def _serve_chat_api(port: int, container_host: str) -> None:
    """Serve the simulated chat API on a thread of this process, so that it ends with the engine."""
    ChatService(
        port=port,
        container_host=container_host,
        client_secret=CLIENT_SECRET,
        auth_latency=AUTH_LATENCY,
        answer_latency=ANSWER_LATENCY,
    ).start()


def _end_with_parent() -> None:
    """Kill the session when the parent's end of the pipe closes. After a byte, continue without the parent."""
    if not os.read(0, 1):
        processes.end_session(os.getpid())
        os._exit(0)
