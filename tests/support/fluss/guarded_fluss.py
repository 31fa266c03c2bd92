"""A real Fluss with a second listener on each server, where clients must log in by SASL PLAIN."""

from __future__ import annotations

import re

from tests.support.fluss.real_fluss import RealFluss

USERNAME, PASSWORD = "ann", "gehéim-0815-pässwort"


class GuardedFluss(RealFluss):
    """``guarded`` is the address of the listener that demands a login."""

    @property
    def guarded(self) -> str:
        log = self.log_file("coordinator").read_text()
        return "fluss://127.0.0.1:" + re.findall(r"CLIENT://127\.0\.0\.1:([1-9]\d*)", log)[-1]

    def _write_configuration(self) -> None:
        super()._write_configuration()
        for server in ("coordinator", "tablet"):
            path = self.home / f"conf-{server}" / "server.yaml"
            text = path.read_text()
            [listen] = [line for line in text.splitlines() if line.startswith("bind.listeners")]
            text = text.replace(listen, f"{listen},CLIENT://127.0.0.1:0")
            path.write_text(
                text + "internal.listener.name: FLUSS\nsecurity.protocol.map: CLIENT:sasl\n"
                "security.sasl.enabled.mechanisms: PLAIN\n"
                "security.sasl.plain.jaas.config: org.apache.fluss.security.auth.sasl.plain."
                f'PlainLoginModule required user_{USERNAME}="{PASSWORD}";\n'
            )
