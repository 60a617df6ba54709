"""MiniStack's modules, typed as Any: they have no types, and the patches assign to their private names.

And what the patches have in common: to replace a function, to hold a lock, to refuse a call.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

stepfunctions: Any = import_module("ministack.services.stepfunctions")
glue: Any = import_module("ministack.services.glue")
dynamodb: Any = import_module("ministack.services.dynamodb")
sqs: Any = import_module("ministack.services.sqs")
sns: Any = import_module("ministack.services.sns")
lambda_runtime: Any = import_module("ministack.core.lambda_runtime")
lambda_svc: Any = import_module("ministack.services.lambda_svc")
scheduler: Any = import_module("ministack.services.scheduler")
eventbridge: Any = import_module("ministack.services.eventbridge")
apigateway: Any = import_module("ministack.services.apigateway_v1")
provisioners: Any = import_module("ministack.services.cloudformation.provisioners")
responses: Any = import_module("ministack.core.responses")
persistence: Any = import_module("ministack.core.persistence")

PATCHES: dict[str, Callable[[], None]] = {}  # by name, in the order of application


class PatchError(RuntimeError):
    """A name that a patch replaces does not exist: MiniStack has changed."""


def patch(apply: Callable[[], None]) -> Callable[[], None]:
    """Decorator: register a patch. Its docstring states the behavior of AWS that it adds, and the page."""
    PATCHES[apply.__name__] = apply
    return apply


def replace(module: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `module.name` by `make(original)`. Raises PatchError if there is no such name."""
    if not hasattr(module, name):
        raise PatchError(f"{module.__name__} has no {name} any more")
    setattr(module, name, make(getattr(module, name)))


def wrap(module: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace `module.name` by `function`, which receives the original as its first argument. Raises PatchError."""
    replace(module, name, lambda original: functools.partial(function, original))


def put(module: Any, name: str, value: Any) -> None:
    """Replace `module.name` by `value`. Raises PatchError if there is no such name."""
    replace(module, name, lambda _original: value)


def wrap_resource(arn: str, function: Callable[..., Any]) -> None:
    """As `wrap`, for the function of a task resource: `function(original, resource, arguments)`."""
    dispatch = stepfunctions._SERVICE_DISPATCH
    if arn not in dispatch:
        raise PatchError(f"{stepfunctions.__name__} has no {arn} any more")
    dispatch[arn] = functools.partial(function, dispatch[arn])


def locked(lock: AbstractContextManager[Any], operation: Callable[..., Any]) -> Callable[..., Any]:
    """`operation`, inside the lock."""

    @functools.wraps(operation)
    def run(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return operation(*args, **kwargs)

    return run


@contextmanager
def setting[Value](variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Give a context variable this value inside the `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def refused(code: str, message: str) -> Any:
    """The answer to a call that is refused."""
    return responses.error_response_json(code, message, 400)
