"""One round in this process: threads copy, a JVM started on demand commits (`sluice tier`)."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext

from sluice.checks.lake import check_lake
from sluice.client import connect
from sluice.client.client import Client
from sluice.client.heartbeats import Heartbeats
from sluice.client.log_source import ClientLogSource
from sluice.client.snapshot_lease import never_tiered
from sluice.config import Config
from sluice.driver.jvm import Jvm, check_jvm
from sluice.driver.not_due import claim_table
from sluice.driver.threads import ThreadRunner
from sluice.errors import ClaimLost, SluiceError
from sluice.failpoints import failpoint
from sluice.lake.iceberg_catalog import IcebergLake
from sluice.model import BucketSnapshot, Claim, TableInfo, TablePath
from sluice.rounds.files import RoundResult
from sluice.rounds.keyed_options import KeyedRoundOptions
from sluice.rounds.limits import RoundLimits
from sluice.rounds.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.progress import NoProgress, Progress
from sluice.rounds.reasons import failure_of
from sluice.rounds.retier import RepairMode
from sluice.rounds.round import run_round

_LOG = logging.getLogger(__name__)


def tier_once(
    config: Config,
    path: TablePath | None,
    *,
    now: bool = False,
    attempt: str | None = None,
    progress: Progress | None = None,
    jvm: Jvm | None = None,
    repair_mode: RepairMode | None = None,
) -> RoundResult:
    """Claims a table, runs one round of it here, and reports it.

    :param path: this table only; None: whichever waits longest.
    :param now: has the table made due if it is not; not if it is paused, or another round has it.
    :param jvm: one that runs already, for several rounds; else one is started and ended here.
    :param repair_mode: what to do with a lake that is behind Fluss.
    :raises ConfigurationError: something is missing on this machine; nothing was claimed.
    :raises TableNotDue: none can be claimed now; says why, and whether waiting helps.
    :raises SluiceError: why the round failed; the coordinator was told so.
    """
    check_lake(config)
    if jvm is None:
        check_jvm(config.tiering.jars)
    with connect(config.client) as client:
        failpoint("round.claim.before")
        claim = claim_table(client, path, now=now)
        failpoint("round.claim.after")
        lost = threading.Event()
        with Heartbeats(client.tiering, on_lost=lambda *_: lost.set()) as heartbeats:
            heartbeats.add(claim)
            try:
                with nullcontext(jvm) if jvm is not None else Jvm(config.tiering.jars) as java:
                    lake = IcebergLake(java.gateway, config.datalake.iceberg, config.tiering)
                    with closing(lake):
                        result = _run(
                            config,
                            client,
                            lake,
                            claim,
                            lost,
                            attempt,
                            progress or NoProgress(),
                            repair_mode,
                        )
            except BaseException as error:
                _report_failure(client, claim, error, config.secrets())
                raise
            finally:
                heartbeats.remove(claim)
        failpoint("round.report.before")
        result = _report(client, claim, result)
        failpoint("round.report.after")
        return result


def round_limits(config: Config) -> RoundLimits:
    """How long a round may copy, and how much."""
    return RoundLimits(config.tiering.max_round_ms, config.tiering.max_round_bytes)


def keyed_round_options(config: Config, snapshots: Iterable[BucketSnapshot]) -> KeyedRoundOptions:
    """What buckets of a table with a primary key begin with, and what their changes may take."""
    return KeyedRoundOptions(
        {snapshot.bucket: snapshot for snapshot in snapshots},
        config.tiering.changes_memory_bytes,
        config.tiering.spill_dir,
    )


def _run(
    config: Config,
    client: Client,
    lake: IcebergLake,
    claim: Claim,
    lost: threading.Event,
    attempt: str | None,
    progress: Progress,
    repair_mode: RepairMode | None,
) -> RoundResult:
    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        source = ClientLogSource(config.client, claim.path, info)
        return ThreadRunner(
            source, writers, config.tiering.parallelism, cancelled=lost, on_rows=progress.copied
        )

    try:
        with _held(client, claim, repair_mode) as snapshots:
            return run_round(
                claim,
                client.tiering,
                lake,
                runner,
                attempt=attempt or uuid.uuid4().hex,
                progress=progress,
                limits=round_limits(config),
                repair_mode=repair_mode,
                keyed=keyed_round_options(config, snapshots),
            )
    except SluiceError as error:
        if not lost.is_set():
            raise
        return RoundResult(
            str(claim.path),
            claim.table_id,
            claim.tiering_epoch,
            claim.coordinator_epoch,
            "claim_lost",
            notes=(f"the claim was lost; the round ended by {type(error).__name__}: {error}",),
        )


@contextmanager
def _held(
    client: Client, claim: Claim, repair_mode: RepairMode | None
) -> Iterator[Sequence[BucketSnapshot]]:
    """The KV snapshots that the round may begin buckets with, leased while the block lasts.

    Those of buckets that were never tiered; of all of them, where a table is to be mended: what
    the lake lacks is only known once it was looked at.

    :raises LeaseNotObtained: not all could be held. :raises TableNotExist: it was dropped.
    """
    info = client.admin.table_info(claim.path)
    if info.table_id != claim.table_id or not info.has_primary_key:
        yield ()  # of another table than was claimed the round itself will say so
        return
    parts = never_tiered(client.admin, info)
    buckets = {part.bucket(number) for part in parts for number in part.buckets}
    if repair_mode is None and not buckets:
        yield ()
        return
    with client.snapshot_lease(
        f"sluice-tier-{uuid.uuid4()}", claim.path, buckets=buckets if repair_mode is None else None
    ) as lease:
        failpoint("round.lease.after")
        yield tuple(lease.snapshots.values())


def _report(client: Client, claim: Claim, result: RoundResult) -> RoundResult:
    """Tells the coordinator; a lost claim has nobody to tell."""
    if result.outcome == "claim_lost":
        return result
    try:
        # No statistics: Fluss means totals of the lake table, and this round knows its own share.
        client.tiering.finished(claim, forced=bool(result.forced))
    except SluiceError as error:  # the lake and Fluss have it: the round itself is done
        _LOG.warning("table %s: the round is done, its report failed: %s", claim.path, error)
    return result


def _report_failure(
    client: Client, claim: Claim, error: BaseException, secrets: Sequence[str]
) -> None:
    if isinstance(error, ClaimLost):
        return
    try:
        client.tiering.failed(claim, failure_of(error, secrets).reason)
    except SluiceError as unheard:
        _LOG.warning("table %s: its failure could not be reported: %s", claim.path, unheard)
