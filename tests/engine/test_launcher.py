"""The launcher: the pinned version, every patch documented and switchable, and an engine that ends with its parent."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.emulator import processes
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.engine import launcher, patches
from dev.emulator.environment import ROOT
from tests.support.waiting import wait_until

PARENT = """
import os, sys
from pathlib import Path
from dev.emulator.aws import EmbeddedAws
engine = EmbeddedAws.start(Path(sys.argv[1]))
print(engine.pid, flush=True)
sys.stdin.read()
"""


def test_the_pinned_version_is_the_one_of_the_requirements() -> None:
    pinned = re.search(r"^ministack==(\S+)", (ROOT / "requirements" / "local.in").read_text(), re.MULTILINE)
    assert pinned is not None
    assert pinned.group(1) == launcher.MINISTACK_VERSION


@pytest.mark.parametrize("name", patches.ORDER)
def test_every_patch_states_the_behavior_of_aws_that_it_adds(name: str) -> None:
    source = Path(patches.__file__).with_name(f"{name}.py").read_text()
    assert "AWS" in source.split('"""')[1]
    assert "def apply() -> None:" in source


def test_no_module_of_a_patch_is_left_out() -> None:
    files = {path.stem for path in Path(patches.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(patches.ORDER)


def test_the_engine_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: not processes.session_members(engine), "the engine's end")


def test_a_stop_ends_everything_the_engine_started(tmp_path: Path) -> None:
    engine = EmbeddedAws.start(tmp_path)
    engine.client("s3").create_bucket(Bucket="bucket")
    engine.client("s3").put_object(Bucket="bucket", Key="sleep.py", Body=b"import time\ntime.sleep(3600)\n")
    command = {"Name": "pythonshell", "ScriptLocation": "s3://bucket/sleep.py"}
    engine.client("glue").create_job(Name="sleep", Role="any", Command=command)
    engine.client("glue").start_job_run(JobName="sleep")
    wait_until(lambda: len(processes.session_members(engine.pid)) == 2, "the script's process")
    engine.stop()
    assert processes.session_members(engine.pid) == []
    with pytest.raises(EngineError, match="make local-up"):
        EmbeddedAws.attach(tmp_path)


def test_a_second_engine_in_the_same_folder_is_refused(aws: EmbeddedAws) -> None:
    with pytest.raises(EngineError, match="already"):
        EmbeddedAws.start(aws.state_dir)
    assert EmbeddedAws.attach(aws.state_dir).endpoint == aws.endpoint


def test_attach_refuses_a_process_id_of_another_program(tmp_path: Path) -> None:
    state = f'{{"pid": {os.getpid()}, "token": "0123456789abcdef", "endpoint": "http://127.0.0.1:1"}}'
    (tmp_path / "engine.pid").write_text(state)
    with pytest.raises(EngineError, match="not running any more"):
        EmbeddedAws.attach(tmp_path)
