"""The engine that judges the races, once for the whole directory."""

from collections.abc import Iterator

import pytest

from local.dynamodb_local import DynamoDbLocal


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    with DynamoDbLocal.start(tmp_path_factory.mktemp("dynamodb-local") / "dynamodb.log") as running:
        yield running
