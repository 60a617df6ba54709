"""The variables of the deployed functions, as `sam local invoke` reads them from its file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.stack_resources import StackResource, resources

ENDPOINT = "AWS_ENDPOINT_URL"

Variables = dict[str, dict[str, str]]


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
