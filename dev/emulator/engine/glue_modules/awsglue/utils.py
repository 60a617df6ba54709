"""`getResolvedOptions`: the arguments of a run, by name.

AWS: "Accessing parameters using getResolvedOptions" and "Using job parameters in AWS Glue jobs" (Glue guide); the
errors and the options that are always in the result are those of `awsglue.utils` in the public repository
awslabs/aws-glue-libs.
"""

import argparse
from collections.abc import Iterable
from typing import Any, NoReturn

# Set by Glue for every job. A script that requests one of them is refused.
_RESERVED = (
    "job-bookmark-option",
    "job-bookmark-from",
    "job-bookmark-to",
    "continuation-option",
    "JOB_ID",
    "JOB_RUN_ID",
    "SECURITY_CONFIGURATION",
    "encryption-type",
)
_FOLDERS = ("TempDir", "RedshiftTempDir")  # optional, and two names of the same value


class GlueArgumentError(Exception):
    """An argument is missing or has no value."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GlueArgumentError(message)


def getResolvedOptions(args: list[str], options: Iterable[str]) -> dict[str, Any]:
    """Return the values of `options` in `args`, which is `sys.argv`. Hyphens of a name become underscores.

    An argument is `--name value` or `--name=value`. Arguments that are not in `options` are ignored. The result also
    has the options that Glue reserves, with None if the run has none.

    Raises:
        GlueArgumentError: an option is missing or has no value.
        RuntimeError: an option is reserved.
    """
    wanted = list(options)
    for name in _RESERVED:
        if name in wanted:
            raise RuntimeError(f"Using reserved arguments --{name}")
    parser = _Parser()
    for name in (*_RESERVED, *_FOLDERS):
        parser.add_argument(f"--{name}")
    for name in wanted:
        if name not in _FOLDERS:
            parser.add_argument(f"--{name}", required=True)
    found = vars(parser.parse_known_args(args[1:])[0])
    found["TempDir"] = found["RedshiftTempDir"] = found["TempDir"] or found["RedshiftTempDir"]
    del found["continuation_option"]  # the former name of the bookmark option
    found["job_bookmark_option"] = found["job_bookmark_option"] or "job-bookmark-disable"
    return found
