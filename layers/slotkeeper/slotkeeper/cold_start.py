"""Disables garbage collection during a cold start, which saves a tenth of its time.

Python collects garbage whenever a number of objects were created. Importing boto3 and creating clients creates some
hundred thousand objects, nearly all of which stay in use. A function imports this module first, and calls `over` last.
"""

import gc

gc.disable()


def over() -> None:
    """Enable garbage collection for new objects only.

    Existing objects are ignored by all later collections ("gc.freeze", Python's documentation). Without that the first
    call would check all of them.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
