"""S3, STS, IAM and Glue on a free loopback port (moto), with keys and tokens really checked."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config as BotoConfig
from pyarrow import fs

from sluice.storage import s3_file_system, s3_options
from tests.support.catalog_servers.keys import Keys
from tests.support.catalog_servers.program import http_answers, running
from tests.support.catalog_servers.sessions import CONTROL

ROOT = Path(__file__).resolve().parents[3]
REGION = "eu-central-1"
BUCKET = "lake"
ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/tables"
_TIMEOUT_S = 30
_NOBODY = Keys("nobody", "secret-of-nobody")


class IamS3:
    """A store with one user, one role and one bucket; a context manager.

    :ivar owner: keys of the user, who may do all, also assume the role.
    """

    def __init__(self, life_s: float | None = None) -> None:
        """:param life_s: caps the life of session keys, in seconds; None: as their caller asks."""
        self.endpoint = ""
        self.owner = _NOBODY
        self._life_s = life_s
        self._stack = ExitStack()

    def __enter__(self) -> IamS3:
        folder = Path(tempfile.mkdtemp(prefix="sluice-s3-"))
        self._stack.callback(shutil.rmtree, folder)
        command = [
            sys.executable,
            "-m",
            "tests.support.catalog_servers.iam_s3_process",
            f"{folder}/port",
        ]
        try:
            self._stack.enter_context(
                running(command, folder / "log", lambda: self._is_up(folder / "port"), cwd=ROOT)
            )
            self.cap_life(self._life_s)
            self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def options(self, keys: Keys | None = None) -> dict[str, str]:
        """Iceberg's properties for this store, with the owner's or other keys."""
        return {**self.place, **(keys or self.owner).options()}

    @property
    def place(self) -> dict[str, str]:
        """Iceberg's properties for this store, without keys."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }

    def client(self, service: str, keys: Keys | None = None) -> Any:
        """A boto3 client of a service, with the owner's or other keys."""
        arguments = (keys or self.owner).aws_options()
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            config=BotoConfig(parameter_validation=False),  # sessions of a few seconds
            **arguments,
        )

    def file_system(self, keys: Keys | None = None) -> fs.S3FileSystem:
        """pyarrow's file system, with the owner's or other keys."""
        return s3_file_system(s3_options(self.options(keys)))

    def assume_role(self, duration_s: int = 900) -> Keys:
        """New keys of a session, asked for by the owner; the store may give them a shorter life.

        :param duration_s: less than AWS's 15 minutes is allowed here.
        """
        found = self.client("sts").assume_role(
            RoleArn=ROLE, RoleSessionName="tests", DurationSeconds=duration_s
        )["Credentials"]
        end_ms = int(found["Expiration"].timestamp() * 1000)
        return Keys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], end_ms)

    def forbid(self, action: str) -> None:
        """Forbids an action of S3 to all keys from now on.

        :param action: such as ``s3:DeleteObject``.
        """
        iam, denied = self.client("iam"), _policy(action, Effect="Deny")
        iam.put_user_policy(UserName="owner", PolicyName="denied", PolicyDocument=denied)
        iam.put_role_policy(RoleName="tables", PolicyName="denied", PolicyDocument=denied)

    def cap_life(self, life_s: float | None) -> None:
        """Caps the life of session keys that are given from now on, in seconds; None: as asked."""
        self._post(f"{CONTROL}life", "" if life_s is None else str(life_s))

    def delay(self, delay_s: float) -> None:
        """Delays requests with session keys, in seconds; not those for a table's metadata."""
        self._post(f"{CONTROL}delay", str(delay_s))

    def delay_metadata(self, delay_s: float) -> None:
        """Delays requests with session keys for a table's metadata, in seconds."""
        self._post(f"{CONTROL}metadata-delay", str(delay_s))

    def keep(self, part: str) -> None:
        """Refuses to delete objects whose path has this part; empty: none."""
        self._post(f"{CONTROL}kept", part)

    def requests(self) -> list[dict[str, str]]:
        """All requests so far: ``method``, ``path``, ``key`` (of the signer) and ``service``."""
        found: list[dict[str, str]] = self._get("requests")
        return found

    def session_secrets(self) -> list[str]:
        """The secret keys and the tokens of all sessions so far."""
        found: list[str] = self._get("secrets")
        return found

    def _get(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.endpoint}{CONTROL}{what}", timeout=_TIMEOUT_S) as f:
            return json.load(f)

    def _is_up(self, file: Path) -> bool:
        if not file.is_file() or not (port := file.read_text()).endswith("\n"):
            return False
        self.endpoint = f"http://127.0.0.1:{port.strip()}"
        return http_answers(f"{self.endpoint}{CONTROL}requests")

    def _set_up(self) -> None:
        iam = self.client("iam")
        iam.create_user(UserName="owner")
        iam.put_user_policy(UserName="owner", PolicyName="all", PolicyDocument=_policy("*"))
        trust = _policy("sts:AssumeRole", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:user/owner"})
        iam.create_role(RoleName="tables", AssumeRolePolicyDocument=trust)
        iam.put_role_policy(RoleName="tables", PolicyName="s3", PolicyDocument=_policy("s3:*"))
        found = iam.create_access_key(UserName="owner")["AccessKey"]
        place = {"LocationConstraint": REGION}
        self.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=place)
        self.owner = replace(
            self.owner, access_key=found["AccessKeyId"], secret_key=found["SecretAccessKey"]
        )
        self._post("/moto-api/reset-auth", "0")  # from the next request on all are checked

    def _post(self, path: str, body: str) -> None:
        plain = {"Content-Type": "text/plain"}  # a form's content would not reach moto
        request = urllib.request.Request(f"{self.endpoint}{path}", body.encode(), plain)
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()


def _policy(action: str, **more: Any) -> str:
    statement = {"Effect": "Allow", "Action": action, **more}
    if "Principal" not in more:
        statement["Resource"] = "*"
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
