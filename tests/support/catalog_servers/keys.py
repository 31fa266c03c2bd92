"""Keys of an S3: a user's own, or those of a session."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key with its secret, and for sessions the token and the end."""

    access_key: str
    secret_key: str
    session_token: str = ""
    expires_at_ms: int = 0
    """Milliseconds since 1970; 0: never."""

    def options(self) -> dict[str, str]:
        """Iceberg's properties of these keys, the end included."""
        found = {"s3.access-key-id": self.access_key, "s3.secret-access-key": self.secret_key}
        if self.session_token:
            found["s3.session-token"] = self.session_token
        if self.expires_at_ms:
            found["s3.session-token-expires-at-ms"] = str(self.expires_at_ms)
        return found

    def aws_options(self) -> dict[str, str]:
        """The keys as arguments of boto3's clients."""
        found = {
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
        }
        return found | ({"aws_session_token": self.session_token} if self.session_token else {})

    def wait_until_over(self) -> None:
        """Sleeps until the session has ended: a real server's clock decides."""
        time.sleep(max(0.0, self.expires_at_ms / 1000 - time.time()) + 0.05)
