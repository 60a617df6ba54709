"""lambda_layers: `sam sync` finds the layer that CloudFormation created."""

import io
import zipfile
from collections.abc import Callable

from dev.emulator.aws import EmbeddedAws


def test_a_layer_is_found_and_published_by_its_arn(aws: EmbeddedAws, unique: Callable[[str], str]) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("python/nothing.py", "")
    client, name = aws.client("lambda"), unique("layer")
    arn = client.publish_layer_version(LayerName=name, Content={"ZipFile": content.getvalue()})["LayerArn"]
    second = client.publish_layer_version(LayerName=arn, Content={"ZipFile": content.getvalue()})
    assert (second["LayerArn"], second["Version"]) == (arn, 2)
    listed = client.list_layer_versions(LayerName=arn)["LayerVersions"]
    assert [each["Version"] for each in listed] == [2, 1]
