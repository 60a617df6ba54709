"""MiniStack's modules, typed as Any: they have no types, and the patches assign to their private names."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

stepfunctions: Any = import_module("ministack.services.stepfunctions")
glue: Any = import_module("ministack.services.glue")
dynamodb: Any = import_module("ministack.services.dynamodb")
sqs: Any = import_module("ministack.services.sqs")
lambda_runtime: Any = import_module("ministack.core.lambda_runtime")
lambda_svc: Any = import_module("ministack.services.lambda_svc")
scheduler: Any = import_module("ministack.services.scheduler")
eventbridge: Any = import_module("ministack.services.eventbridge")
apigateway: Any = import_module("ministack.services.apigateway_v1")
provisioners: Any = import_module("ministack.services.cloudformation.provisioners")
responses: Any = import_module("ministack.core.responses")
persistence: Any = import_module("ministack.core.persistence")


class PatchError(RuntimeError):
    """A name that a patch replaces does not exist: MiniStack has changed."""


def replace(module: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `module.name` by `make(original)`. Raises PatchError if there is no such name."""
    if not hasattr(module, name):
        raise PatchError(f"{module.__name__} has no {name} any more")
    setattr(module, name, make(getattr(module, name)))


def wrap(module: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace `module.name` by `function`, which receives the original as its first argument. Raises PatchError."""
    replace(module, name, lambda original: partial(function, original))
