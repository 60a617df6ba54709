"""The environment of every process that the embedded AWS starts. It gives no access to a real AWS account."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

REGION = "us-east-1"
ACCESS_KEY = "test"
ROOT = Path(__file__).resolve().parents[2]


def child_environment(endpoint: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without the user's AWS settings, and with `endpoint`.

    The interpreter's folder is first in PATH, where `sam build` looks for the function runtime's Python.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": ACCESS_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAM_CLI_TELEMETRY": "0",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
    # Otherwise a proxy of the user's environment would receive requests for 127.0.0.1.
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1,localhost"
    return environment | dict(extra or {})
