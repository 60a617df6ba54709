"""How a container reaches this machine: the host's name or address, which the embedded AWS may have to listen on."""

import ipaddress
import socket
import subprocess
import sys

# Docker Desktop resolves it to the machine, and passes connections on to 127.0.0.1 (Docker's documentation, "Networking
# features in Docker Desktop").
DESKTOP_HOST = "host.docker.internal"
# RFC 1918, from which Docker takes its bridges, and loopback.
NOT_PUBLIC = [ipaddress.ip_network(each) for each in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
GATEWAYS = "{{range .IPAM.Config}}{{or .Gateway .Subnet}} {{end}}"
DOCKER_SECONDS = 30


class BridgeError(RuntimeError):
    """Containers cannot reach this machine; the message states why and what to do."""


def container_host() -> str:
    """The host by which containers reach this machine: for Docker Engine its bridge's gateway. Raises BridgeError."""
    if sys.platform != "linux" or _docker("info", "--format", "{{.OperatingSystem}}") == "Docker Desktop":
        return DESKTOP_HOST
    configured = _docker("network", "inspect", "bridge", "--format", GATEWAYS).split()
    gateway = next((each for each in configured if ":" not in each), "")
    # Without a configured gateway Docker takes the first address of the subnet.
    return listening_address(str(ipaddress.ip_network(gateway)[1]) if "/" in gateway else gateway)


def listening_address(host: str) -> str:
    """The address for the engine to listen on: `host`, or "" for a name. Raises BridgeError unless it is usable."""
    if host == DESKTOP_HOST:
        return ""
    try:
        address = ipaddress.ip_address(host)
        if not any(address in network for network in NOT_PUBLIC):
            raise ValueError
        socket.create_server((host, 0)).close()
    except (ValueError, OSError):
        raise BridgeError(
            f"Docker's bridge has the gateway {host!r}, on which the embedded AWS cannot listen: expected a private "
            "IPv4 address of this machine, as Docker Engine has it unless it is rootless or remote. Nothing was "
            "started; without Docker use make invoke."
        ) from None
    return host


def _docker(*arguments: str) -> str:
    try:
        ran = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True, timeout=DOCKER_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip()
        raise BridgeError(
            f"Docker does not answer: {reason}. DOCKER=yes needs a running Docker. Nothing was started; without Docker "
            "use make invoke."
        ) from None
    return ran.stdout.strip()
