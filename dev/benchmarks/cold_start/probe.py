"""`python -m awslambdaric`, which also records each request for an invocation.

Each adds a line to the file NOTES: the monotonic clock, which all processes share, and the processor seconds of this
process. The first line is the end of the init phase. The folder of this file is not on the path (python -P).
"""

import os
import resource
import sys
import time
from typing import Any

from awslambdaric.__main__ import main
from awslambdaric.lambda_runtime_client import LambdaRuntimeClient

_wait = LambdaRuntimeClient.wait_next_invocation


def _record_and_wait(self: Any) -> Any:
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{time.monotonic()} {used.ru_utime + used.ru_stime}\n")
    return _wait(self)


LambdaRuntimeClient.wait_next_invocation = _record_and_wait
main(sys.argv)
