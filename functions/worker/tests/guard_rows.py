"""Rows of tests/guards for the shipped work: known bugs that its tests must notice. Own work replaces them."""

from __future__ import annotations

from tests.guards.edits import file
from tests.guards.rows import Row

ROWS = [
    Row(
        "f24-published-twice",
        "The manifest is put without a condition, and a late attempt publishes over the one that readers use.",
        file(
            "functions/worker/src/work/publishing.py",
            """
            self._s3.put_object(
                Bucket=self._bucket,
                Key=self.manifest_key,
                Body=json.dumps(manifest, ensure_ascii=False).encode(),
                ContentType="application/json",
                IfNoneMatch="*",
            )
            """,
            """
            self._s3.put_object(
                Bucket=self._bucket,
                Key=self.manifest_key,
                Body=json.dumps(manifest, ensure_ascii=False).encode(),
                ContentType="application/json",
            )
            """,
        ),
        "functions/worker/tests/test_publication.py::"
        "test_f24_two_attempts_interleaved_at_every_call_publish_one_whole_effect",
    ),
]
