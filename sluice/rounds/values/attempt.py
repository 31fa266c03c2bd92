"""One attempt of a round: its claim, what it works with, and what it has to say so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice.clock import Clock, SystemClock
from sluice.model import Claim
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.phases import Phases
from sluice.rounds.values.ports import Cluster, Lake, LakeTable, RunnerFactory
from sluice.rounds.values.progress import NoProgress, Progress
from sluice.rounds.values.types import LakeSnapshot
from sluice.rounds.values.write_ids import new_write_id


@dataclass(frozen=True, slots=True)
class RoundPorts:
    """What the rounds of a driver work with."""

    cluster: Cluster
    lake: Lake
    make_runner: RunnerFactory
    clock: Clock = field(default_factory=SystemClock)


@dataclass(slots=True)
class Attempt:
    """One attempt of a round. Used by the round's thread only."""

    claim: Claim
    ports: RoundPorts
    name: str
    """Unique for each attempt of a round: it is in the names of its files."""
    started_ms: int
    """Epoch milliseconds."""
    phases: Phases
    progress: Progress
    notes: list[str] = field(default_factory=list)
    recovered_snapshot_id: int | None = None
    """The lake snapshot of an earlier round that this one registered with Fluss first."""
    accepted_before: str = ""
    """What the base records as missing: the round that committed it may not have reported it."""

    @classmethod
    def begun(
        cls, claim: Claim, ports: RoundPorts, name: str, progress: Progress | None = None
    ) -> Attempt:
        """An attempt that begins now."""
        progress = progress or NoProgress()
        phases = Phases(ports.clock, progress)
        return cls(claim, ports, name, ports.clock.now_ms(), phases, progress)

    @property
    def cluster(self) -> Cluster:
        return self.ports.cluster

    def write_id(self, table: LakeTable, base: LakeSnapshot | None) -> str:
        """What the names of the attempt's files begin with."""
        return str(new_write_id(self.claim, self.name, table.uuid, base))

    def result(self, outcome: str, **facts: object) -> RoundResult:
        """The result with these facts, and with those that the attempt knows."""
        texts = (str(facts.pop("accepted", "")), self.accepted_before)
        return RoundResult.of(
            self.claim,
            outcome,
            recovered_snapshot_id=self.recovered_snapshot_id,
            seconds=self.phases.seconds(),
            accepted="; ".join(text for text in texts if text),
            **facts,
        )
