"""stub"""

from pathlib import Path
from typing import Any


def draw(report: dict[str, Any], path: Path) -> None: ...
