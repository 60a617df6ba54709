"""A function calls this engine, also if its variables contain an endpoint.

AWS: "AWS SDKs and Tools Reference Guide: Service-specific endpoints": AWS_ENDPOINT_URL is the endpoint of all services.
An SDK ignores an empty value, and calls AWS.
MiniStack passes the function's own value on. With the template's empty one, its functions would call AWS.
"""

from dev.emulator.engine.emulator import lambda_runtime, replace


def apply() -> None:
    """Let the engine's own value win, as it does for the variables that Lambda reserves."""
    replace(lambda_runtime, "_RESERVED_RUNTIME_ENV_VARS", lambda names: {*names, "AWS_ENDPOINT_URL"})
