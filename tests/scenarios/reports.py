"""Helpers for the tests of all scenarios."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from dev.scenarios.runner.scenario import Run


def run_of(**seconds: float) -> Run:
    """A run whose phases took these seconds."""
    run = Run(Console(file=io.StringIO()))
    run.seconds.update(seconds)
    return run


def failing(report: Mapping[str, Any]) -> dict[str, str]:
    """Name -> finding of the claims that fail."""
    return {check["name"]: check["found"] for check in report["checks"] if check["ok"] is False}


def not_shown(report: Mapping[str, Any]) -> dict[str, str]:
    """Name -> finding of the claims that are not shown."""
    return {check["name"]: check["found"] for check in report["checks"] if check["ok"] is None}
