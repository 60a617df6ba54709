"""A layer is found by its ARN or by its name.

AWS: "Lambda API Reference: ListLayerVersions" and "PublishLayerVersion" (LayerName: the name or Amazon Resource Name of
the layer). SAM CLI's `sam sync --code` uses the ARN.
MiniStack treats an ARN as the name of another layer, which has no versions.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import lambda_svc, wrap

Answers = Callable[[str, dict[str, Any]], Any]


def apply() -> None:
    """Replace an ARN by the name in it."""
    for name in ("_list_layer_versions", "_publish_layer_version"):
        wrap(lambda_svc, name, _by_name)


def _by_name(original: Answers, layer: str, asked: dict[str, Any]) -> Any:
    return original(layer.rpartition(":")[2] if layer.startswith("arn:") else layer, asked)
