"""The end of `make local-up`: the sample data, and the next commands."""

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.chat_service import INVALIDATE
from dev.emulator.sample_data import content, months_as_json_lines, read_dataset, split_by_month
from dev.emulator.worker_client import resend
from dev.tools.function_folders import own_module

CHAT_API_URL, GLUE_JOB_NAME = "ChatApiUrl", "GlueJobName"  # the template's parameters
OWN_CODE = 'eval "$(slotkeeper --local stack outputs --export)"'
VARIABLES = "slotkeeper --local stack env"
TALK = 'make say TEXT="Good morning"'
FIRST_MONTH = "2012-01"  # of the sample data
INPUT_KEY = f"input/{FIRST_MONTH}.csv"
console = Console(highlight=False, soft_wrap=True, emoji=False)  # an ARN has ":secret:" in it


def say(message: str) -> None:
    """One progress line."""
    console.print(f"[dim]local:[/dim] {message}")


def say_next_steps(aws: EmbeddedAws, deployed: dict[str, str], chat_api: str | None) -> None:
    """The addresses of the deployed flows, and the next command of each. Commands are bare, to be copied whole."""
    say(f"ready at {aws.endpoint}; for boto3, the AWS CLI and your own code (make cli installs slotkeeper):")
    console.print(OWN_CODE, markup=False)
    say(f"the functions' log: {shown(aws.state_dir / 'engine.log')}")
    if aws.container_host:
        say(f"containers reach it by {aws.container_host}; the variables of sam local invoke: {VARIABLES}")
    if chat_api:
        say(f"the chatbot calls the simulated chat API at {chat_api}; send a message: {TALK}")
        say(f"invalidate the shared token: curl -X POST {chat_api}{INVALIDATE}")
    elif deployed[CHAT_API_URL]:
        say(f"the chatbot calls {escape(deployed[CHAT_API_URL])}; store its credentials: docs/deploy.md, The chatbot")
    if aws.chatbot_url:
        say(f"the chatbot's URL: {aws.chatbot_url}")
    if "WorkQueueUrl" in aws.outputs:
        say(f"send a request to the worker: {escape(work_command())}")
    process = deployed["ProcessName"]
    if deployed[GLUE_JOB_NAME]:
        _say_job(aws, process, deployed[GLUE_JOB_NAME])
        return
    say(f"{INPUT_KEY} is in {aws.outputs['DataBucketName']}; a message body for RequestQueueUrl that summarizes it:")
    console.print(first_body(process), markup=False)


def _say_job(aws: EmbeddedAws, process: str, name: str) -> None:
    script = aws.client("glue").get_job(JobName=name)["Job"]["Command"]["ScriptLocation"]
    say(f"Glue job {escape(name)} runs {escape(script)}, which each run reads again")
    say(f"each run's output: {shown(aws.state_dir / 'glue')}/<execution>.output.log and .error.log; submit a request:")
    console.print(f"slotkeeper --local request submit --process {process} --request-id first --wait", markup=False)


def upload_sample(aws: EmbeddedAws) -> None:
    """Upload one month of sample data to DataBucket, as CSV for a Glue job, and the sample of the shipped work."""
    month = split_by_month(read_dataset())[FIRST_MONTH]
    s3, bucket = aws.client("s3"), aws.outputs["DataBucketName"]
    s3.put_object(Bucket=bucket, Key=INPUT_KEY, Body=month, ContentType="text/csv")
    if sample := own_module("worker", "sample"):
        sample.upload(s3, bucket, content(months_as_json_lines()[FIRST_MONTH]))


def work_command() -> str:
    """The command that sends the worker a request: of the shipped work, or with a body to complete."""
    sample = own_module("worker", "sample")
    if sample is None:
        return resend('{"request_id": "first", "payload": {}}')
    return f"make work; or your own body: {resend(sample.body('first'))}"


def sample_body() -> str:
    """The body of a sample request to the shipped work. Raises EngineError if your own work has none."""
    sample = own_module("worker", "sample")
    if sample is None:
        raise EngineError(f"BODY is empty: expected a message for your work, as in {work_command()}. Nothing was sent.")
    body: str = sample.body()
    return body


def first_body(process: str) -> str:
    """A message body for RequestQueue that reads what `up` uploaded."""
    arguments = {"--input_key": INPUT_KEY, "--output_key": f"output/{FIRST_MONTH}.json"}
    return json.dumps({"process": process, "request_id": "first", "arguments": arguments})


def shown(path: Path) -> str:
    """The path, relative to the working directory if it is in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
