"""The way to an API Gateway stage of the embedded AWS."""

from urllib.parse import urlsplit


def reachable(url: str, endpoint: str) -> str:
    """Where `endpoint` answers what AWS would answer at `url` (https://<id>.execute-api.<region>.<...>/<stage>/<path>).

    A stage has a host name of its own, which no resolver knows here. The engine therefore serves the same stage under a
    path as well; API, stage, path and what the function is told stay the same. Raises ValueError for another URL.
    """
    at = urlsplit(url)
    name, _, rest = (at.hostname or "").partition(".")
    if not name or not rest.startswith("execute-api."):
        raise ValueError(f"{url} is not the URL of an API Gateway stage, https://<id>.execute-api.<region>...")
    return f"{endpoint}/_aws/execute-api/{name}{at.path}"
