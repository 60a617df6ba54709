"""Keeps the garbage collector out of a cold start, in which hardly anything is garbage and nearly everything stays.

Python looks for garbage each time so many objects have been made. Importing boto3 and making clients makes some hundred
thousand, so it looks again and again, and finds next to nothing: a tenth of the start. A function imports this first of
all, and calls `over` last of all.
"""

import gc

gc.disable()


def over() -> None:
    """From here on garbage is collected, and what there is now is not looked at any more: neither in the first call,
    which would otherwise be the one that looks through all of it, nor ever again ("gc.freeze", Python's documentation).
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
