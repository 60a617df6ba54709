"""Functions do not find two packages of the development environment that Lambda does not have.

AWS: "Lambda Developer Guide: Building Lambda functions with Python", Runtime-included SDK versions: boto3, botocore and
their dependencies.
MiniStack's functions find all packages of its own environment, including awscrt and pyOpenSSL. Botocore imports both if
they exist, which takes a fifth of a cold start.
"""

from dev.emulator.engine.emulator import lambda_runtime, replace

# None in sys.modules makes an import fail ("The import system", The Python Language Reference).
HIDE = 'import sys\nsys.modules.update({"awscrt": None, "OpenSSL": None})\n'


def apply() -> None:
    """Hide them at the start of the program of a Python environment."""
    replace(lambda_runtime, "_PYTHON_WORKER_SCRIPT", lambda script: HIDE + script)
