"""boto3 clients for what runs on this machine: they can reach neither the user's account nor the user's AWS files."""

import os
from typing import Any

import boto3
import botocore.session
from botocore.config import Config

from dev.emulator.environment import ACCESS_KEY, REGION

# What botocore would otherwise read of the user's: a profile that is named in the environment and stands in no file
# stops every client ("Configuration and credential file settings" of the AWS CLI's user guide).
_NOBODYS_SETTINGS: dict[str, Any] = {
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
    settings: Config | None = None,
) -> Any:
    """A client of `service` at `endpoint`, with dummy keys.

    Args:
        connections: how many threads can call at the same instant.
        attempts: how often a call is made, its retries included; 1 lets a test see every failure.
        read_timeout: seconds.
        settings: what else is wanted, or wanted otherwise.
    """
    make: Any = _session().client  # its stubs want the service's name as a literal
    config = _config(connections, attempts, read_timeout)
    return make(service, endpoint_url=endpoint, config=config.merge(settings) if settings else config)


def local_resource(service: str, endpoint: str, connections: int = 50) -> Any:
    """The same as one of boto3's resources, for programs that ask for that."""
    make: Any = _session().resource
    return make(service, endpoint_url=endpoint, config=_config(connections, 1, 60))


def _session() -> boto3.session.Session:
    # A session of its own: boto3's default one is shared, and remembers profiles.
    core = botocore.session.Session(session_vars=_NOBODYS_SETTINGS)
    return boto3.session.Session(
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=ACCESS_KEY,
        region_name=REGION,
        botocore_session=core,
    )


def _config(connections: int, attempts: int, read_timeout: float) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        read_timeout=read_timeout,
        max_pool_connections=connections,
        proxies={},
    )
