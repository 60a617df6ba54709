"""A function finds neither of two packages that botocore would load if they were there, and that Lambda does not have.

AWS: "Lambda Developer Guide: Building Lambda functions with Python", Runtime-included SDK versions: boto3, botocore and
what they need.
MiniStack's functions find all packages of its own environment, with awscrt and pyOpenSSL among them. Botocore imports
both, which takes a fifth of a cold start.
"""

from dev.emulator.engine.emulator import lambda_runtime, replace

# None in sys.modules makes an import fail ("The import system", The Python Language Reference).
HIDE = 'import sys\nsys.modules.update({"awscrt": None, "OpenSSL": None})\n'


def apply() -> None:
    """Let the program of a Python environment begin by hiding them."""
    replace(lambda_runtime, "_PYTHON_WORKER_SCRIPT", lambda script: HIDE + script)
