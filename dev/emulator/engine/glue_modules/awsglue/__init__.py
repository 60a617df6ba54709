"""The part of Glue's package `awsglue` that needs no Spark: `awsglue.utils.getResolvedOptions`.

Only the scripts of the embedded Glue can import it. Deployed code cannot, and in AWS Glue provides its own package.
"""

import sys
from importlib.abc import MetaPathFinder


class _NotAvailable(MetaPathFinder):
    """Refuses the import of the package's other modules, with the reason."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname.startswith("awsglue."):
            raise ModuleNotFoundError(
                f"{fullname} is not available here: the embedded Glue runs plain Python, and has awsglue.utils only. "
                "Test this script in AWS Glue or in its Docker image",
                name=fullname,
            )


sys.meta_path.append(_NotAvailable())  # last: it is asked only for modules that no other finder has
