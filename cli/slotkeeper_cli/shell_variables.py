"""The stack's outputs as variables of a shell, with which the AWS CLI, boto3 and the library use the stack."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.stack_connection import LOCAL_FILE, StackConnection

# The variables that an AWS SDK prefers to those of the local stack: a profile, temporary credentials, and endpoints of
# single services ("Configuration and credential file settings" and "Service-specific endpoints" of the AWS SDKs and
# Tools reference guide).
_OF_AN_ACCOUNT = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
_ENDPOINT = "AWS_ENDPOINT_URL"


@dataclass(frozen=True)
class ShellVariables:
    """The variables to export, and the names of those to remove."""

    exported: Mapping[str, str]
    removed: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Commands for sh, bash and zsh."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.exported.items()]
        return [f"unset {' '.join(self.removed)}"] * bool(self.removed) + exports


def variable_name(output: str) -> str:
    """The variable of an output: REQUEST_QUEUE_URL for RequestQueueUrl, as functions and the library name it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", output).upper()


def shell_variables(stack: StackConnection, environment: Mapping[str, str]) -> ShellVariables:
    """The variables for the stack.

    For a stack in an account: no credentials. For the local stack: also its endpoint and dummy credentials, and what
    hides the user's own configuration, so that no call can reach an account.

    Args:
        environment: the variables of the user's shell.
    """
    outputs = {variable_name(name): value for name, value in sorted(stack.reachable_outputs.items())}
    # The AWS CLI and most SDKs prefer the first name of the region, and boto3 knows only the second.
    common = {"SLOTKEEPER_STACK": stack.name, "AWS_REGION": stack.region, "AWS_DEFAULT_REGION": stack.region}
    if stack.local is None:
        return ShellVariables(common | ({"AWS_PROFILE": stack.profile} if stack.profile else {}) | outputs)
    local = {"SLOTKEEPER_LOCAL": "1", LOCAL_FILE: str(stack.local_file)} | _local(stack.local, environment)
    endpoints = sorted(name for name in environment if name.startswith(f"{_ENDPOINT}_"))
    return ShellVariables(common | local | outputs, (*_OF_AN_ACCOUNT, *endpoints))


def _local(local: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    unproxied = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    direct = ",".join(dict.fromkeys([*filter(None, unproxied.split(",")), "127.0.0.1"]))
    variables = {
        _ENDPOINT: local["endpoint"],
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        "AWS_ACCESS_KEY_ID": local["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": local["secret_access_key"],
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": direct,
        "no_proxy": direct,
    }
    if api := local.get("chat_service"):
        variables |= {
            "CHAT_API_URL": api["url"],
            "CHAT_API_CLIENT_ID": api["client_id"],
            "CHAT_API_CLIENT_SECRET": api["client_secret"],
        }
    return variables
