"""What a catalog tells clients about the storage of a table: keys, or that it signs requests."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalog_servers.keys import Keys

_NEVER_SIGNED = frozenset({"authorization", "user-agent", "x-amzn-trace-id", "amz-sdk-request"})


class Vending(Enum):
    """How clients come to the storage."""

    NOTHING = "nothing"
    """They have keys of their own."""
    CONFIG = "config"
    """Keys in ``config`` of each answer with a table."""
    CREDENTIALS = "storage-credentials"
    """Keys in ``storage-credentials`` of each answer with a table, by prefix."""
    SIGNING = "remote-signing"
    """No keys: the catalog signs each request."""


@dataclass(frozen=True, slots=True)
class Given:
    """Keys that a client has got."""

    prefix: str
    """Empty where they are for all."""
    keys: Keys


class Vendor:
    """Describes the storage of tables, with keys that are new in each answer. Thread safe."""

    def __init__(
        self,
        store: IamS3,
        how: Vending,
        life_s: int,
        *,
        says_end: bool = True,
        below: tuple[str, ...] = ("",),
    ) -> None:
        """:param life_s: of the keys, in seconds.
        :param says_end: whether the keys come with ``s3.session-token-expires-at-ms``.
        :param below: the prefixes of ``storage-credentials``, each with keys of its own, relative
            to the table's location, such as ``/data``.
        """
        self._store, self._how, self._life_s = store, how, life_s
        self._says_end, self._below = says_end, below
        self._lock = threading.Lock()
        self.given: list[Given] = []

    def described(self, location: str, refresh: str = "") -> dict[str, Any]:
        """The fields to add to an answer with a table.

        :param refresh: the path of the table's credentials endpoint; empty: clients are told none.
        """
        if self._how is Vending.NOTHING:
            return {}
        config = dict(self._store.place)
        if self._how is Vending.SIGNING:
            return {"config": config | {"s3.remote-signing-enabled": "true"}}
        if refresh:
            config["client.refresh-credentials-endpoint"] = refresh
        if self._how is Vending.CONFIG:
            return {"config": config | self._new("")}
        return {"config": config, "storage-credentials": self.credentials(location)}

    def credentials(self, location: str) -> list[dict[str, Any]]:
        """New keys for each prefix of a table."""
        prefixes = [f"{location}{end}" for end in self._below]
        return [{"prefix": prefix, "config": self._new(prefix)} for prefix in prefixes]

    def sign(self, request: dict[str, Any]) -> dict[str, Any]:
        """Signs a request to S3 with the owner's keys, as the signing endpoint answers."""
        headers = {
            name: ",".join(values)
            for name, values in request["headers"].items()
            if name.lower() not in _NEVER_SIGNED
        }
        keys = self._store.owner
        asked = AWSRequest(method=request["method"], url=request["uri"], headers=headers)
        asked.context["payload_signing_enabled"] = False
        signer = S3SigV4Auth(Credentials(keys.access_key, keys.secret_key), "s3", request["region"])
        signer.add_auth(asked)
        signed = {name: [value] for name, value in asked.headers.items()}
        return {"uri": request["uri"], "headers": signed}

    def _new(self, prefix: str) -> dict[str, str]:
        keys = self._store.assume_role(self._life_s)
        with self._lock:
            self.given.append(Given(prefix, keys))
        options = keys.options()
        if not self._says_end:
            del options["s3.session-token-expires-at-ms"]
        return options
