"""An imported REST API has the gateway responses of its OpenAPI document.

AWS: "API Gateway extensions to OpenAPI: x-amazon-apigateway-gateway-responses": an import sets each of them, as
PutGatewayResponse does.
MiniStack renders customized responses, but ignores those of an imported document.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import apigateway, wrap

EXTENSION = "x-amazon-apigateway-gateway-responses"


def apply() -> None:
    """Set them immediately after the import, so that the first deployment has them."""
    wrap(apigateway, "_import_rest_api", _with_responses)


def _with_responses(original: Callable[..., str], document: dict[str, Any], *args: Any) -> str:
    api_id = original(document, *args)
    for response_type, response in document.get(EXTENSION, {}).items():
        status, _, body = apigateway._put_gateway_response(api_id, response_type, response)
        if status >= 400:
            raise ValueError(f"gateway response {response_type} was refused: {body!r}")
    return api_id
