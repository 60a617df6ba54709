"""The `time` of one module, so that a test's clock moves no thread that another test has left behind."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def replace_time(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **functions: Callable[..., Any]) -> None:
    """Replace functions of `time` where this module calls them, and nowhere else."""
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(module.time), **functions}))
