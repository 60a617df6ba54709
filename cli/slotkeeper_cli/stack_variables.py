"""The stack's variables: of its functions for `sam local invoke`, and of its outputs for a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.stack_connection import LOCAL_FILE, StackConnection, StackResource, resources

ENDPOINT = "AWS_ENDPOINT_URL"

Variables = dict[str, dict[str, str]]
# The variables that an AWS SDK prefers to those of the local stack: a profile, temporary credentials, and endpoints of
# single services ("Configuration and credential file settings" and "Service-specific endpoints" of the AWS SDKs and
# Tools reference guide).
_OF_AN_ACCOUNT = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")


def function_variables(stack: StackConnection) -> Variables:
    """Each function's variables as deployed, by logical id; for the local stack with a container's addresses.

    Raises:
        CommandRefused: containers cannot reach the local stack.
        CommandFailed: the caller may not decrypt a function's variables.
    """
    functions = [one for one in resources(stack) if one.kind == "AWS::Lambda::Function"]
    client = stack.client("lambda")
    read = in_parallel(lambda function: _variables(client, function), functions)
    variables = {function.logical_id: each for function, each in zip(functions, read, strict=True)}
    return _for_container(variables, stack) if stack.is_local else variables


def _variables(client: Any, function: StackResource) -> dict[str, str]:
    environment = client.get_function_configuration(FunctionName=function.name).get("Environment", {})
    # Lambda API Reference, EnvironmentResponse: instead of the variables, if the key may not be used.
    if error := environment.get("Error"):
        raise CommandFailed(
            f"Lambda does not return the variables of {function.logical_id}: {error.get('Message', '')}. With your own "
            "key this command needs kms:Decrypt (docs/permissions.md). No file was written."
        )
    variables: dict[str, str] = environment.get("Variables", {})
    return variables


def _for_container(variables: Variables, stack: StackConnection) -> Variables:
    """The variables with the address at which a container reaches the local stack, also as the functions' endpoint."""
    if not stack.container_endpoint:
        raise CommandRefused(
            "the local stack listens on 127.0.0.1 only, where a container cannot reach it: run make local-down, then "
            "make local-up DOCKER=yes. No file was written."
        )

    host = urlsplit(stack.container_endpoint).hostname
    endpoint = {ENDPOINT: stack.container_endpoint}
    # SAM CLI gives the "Parameters" to every function: one that is not deployed must not call an account either.
    return {"Parameters": endpoint} | {
        function: {name: value.replace("//127.0.0.1:", f"//{host}:") for name, value in own.items()} | endpoint
        for function, own in variables.items()
    }


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, and create its folder. Raises CommandFailed."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}. Give another file with --output.") from error


def shell_lines(exported: Mapping[str, str], removed: Sequence[str] = ()) -> list[str]:
    """Commands for sh, bash and zsh that export variables and remove others."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    return [f"unset {' '.join(removed)}"] * bool(removed) + exports


def variable_name(output: str) -> str:
    """The variable of an output: REQUEST_QUEUE_URL for RequestQueueUrl, as functions and the library name it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", output).upper()


def shell_variables(stack: StackConnection, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables to export for the stack, and the names of those to remove.

    For a stack in an account: no credentials. For the local stack: also its endpoint and dummy credentials, and what
    hides the user's own configuration, so that no call can reach an account.

    Args:
        environment: the variables of the user's shell.
    """
    outputs = {variable_name(name): value for name, value in sorted(stack.reachable_outputs.items())}
    # The AWS CLI and most SDKs prefer the first name of the region, and boto3 knows only the second.
    common = {"SLOTKEEPER_STACK": stack.name, "AWS_REGION": stack.region, "AWS_DEFAULT_REGION": stack.region}
    if stack.local is None:
        return common | ({"AWS_PROFILE": stack.profile} if stack.profile else {}) | outputs, []
    local = {"SLOTKEEPER_LOCAL": "1", LOCAL_FILE: str(stack.local_file)} | _local(stack.local, environment)
    endpoints = sorted(name for name in environment if name.startswith(f"{ENDPOINT}_"))
    return common | local | outputs, [*_OF_AN_ACCOUNT, *endpoints]


def _local(local: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    unproxied = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    direct = ",".join(dict.fromkeys([*filter(None, unproxied.split(",")), "127.0.0.1"]))
    variables = {
        ENDPOINT: local["endpoint"],
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
