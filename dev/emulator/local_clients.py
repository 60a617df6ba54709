"""boto3 clients for services on this machine. They use neither the user's account nor the user's AWS files."""

import os
from typing import Any

import boto3
import botocore.session
from botocore.config import Config

from dev.emulator.environment import ACCESS_KEY, REGION

# Without these, botocore reads the user's settings, and fails for a profile that the environment names and no file
# defines ("Configuration and credential file settings" of the AWS CLI's user guide).
_NO_USER_SETTINGS: dict[str, Any] = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


def local_client(
    service: str,
    endpoint: str,
    connections: int = 50,
    attempts: int = 1,
    read_timeout: float = 60,
) -> Any:
    """A client of `service` at `endpoint`, with dummy keys.

    Args:
        connections: the number of simultaneous calls.
        attempts: calls, retries included; with 1 a test sees every failure.
        read_timeout: seconds.
    """
    # boto3's default session is shared, and remembers profiles.
    core = botocore.session.Session(session_vars=_NO_USER_SETTINGS)
    session = boto3.session.Session(
        aws_access_key_id=ACCESS_KEY, aws_secret_access_key=ACCESS_KEY, region_name=REGION, botocore_session=core
    )
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        read_timeout=read_timeout,
        max_pool_connections=connections,
        proxies={},
    )
    make: Any = session.client  # its stubs want the service's name as a literal
    return make(service, endpoint_url=endpoint, config=config)
