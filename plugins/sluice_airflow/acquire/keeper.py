"""Keeps the claims of a run alive while none of its tasks does. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from sluice.client.tiering.heartbeats import CLAIM_LOST, Heartbeats, beat_interval_s, by_table
from sluice.errors import FlussError, TableNotExist, UnknownServerError
from sluice.failpoints import failpoint
from sluice.masking import mask, reason_text
from sluice.model import Claim, Reason, TablePath
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, claim_of, plan_uri
from sluice.rounds.records.run_files import run_files
from sluice_airflow.acquire.acquire import LEASE_REFUSED
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import (
    has_begun,
    is_at_work,
    is_started,
    mark_ended,
    replace_claim,
    replacement,
    waits_for_claim,
)
from sluice_airflow.claims.claims import claimed_table

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

PLANLESS_BEATS = 4
"""After so many heartbeats a run with claims has a plan."""
ENDED = "the keeper of the run has ended"
LATE = "its tier task did not wait for it"


class ClaimKeeper:
    """Sends the heartbeats of all claims of a run, and claims again what the run has lost.

    It finds the claims in the run's plans, which acquire_lease writes one by one. It sends the
    heartbeats of a claim before, between and after the tries of its tier task, until the
    coordinator ends the claim. During a try the tier task sends them, so that they end with it. A
    lost claim whose tier task has not started is claimed again, under a new plan. Another keeper
    may continue at any step, because all it needs is in the work folder and at the coordinator.
    For one thread at a time, except :meth:`stop`.
    """

    def __init__(
        self, client: Client, work_uri: str, lease_id: str, interval_s: float = 20.0
    ) -> None:
        """:param interval_s: most seconds between two heartbeats."""
        self._client = client
        self._interval_s = interval_s
        self._work_uri = work_uri
        self._lease_id = lease_id
        self._stopping = Event()
        self._read: set[str] = set()
        self._files: dict[str, set[str]] = {}
        """The names of the files in each round's folder, when they were last listed."""
        self._kept: dict[Claim, PlanFile] = {}
        self._lost: dict[TablePath, PlanFile] = {}
        """The lost claims that their tier tasks may wait for."""
        self._past: set[TablePath] = set()
        """Tables with a claim that ended after a task had begun to work on it."""
        self._late: set[Claim] = set()
        self._followed: set[str] = set()
        """The folders of lost claims whose new claims have tasks."""
        self._is_new = True
        self._lost_count = 0
        self._again: list[PlanFile] = []
        """The new claims that :meth:`release_again` releases."""
        self._refused: list[tuple[Claim, str]] = []
        self._planless = 0
        self._planless_logged = False
        self._unknown: set[Claim] = set()
        self._troubles: dict[str, str] = {}

    @property
    def interval_s(self) -> float:
        """Seconds between two heartbeats, as the coordinator needs them."""
        return beat_interval_s(self._interval_s, self._client.tiering.claim_timeout_s)

    def beat(self) -> bool:
        """Sends one heartbeat for all claims. Returns whether one can be claimed again.

        Errors of the cluster and of the work folder are logged, once in a row.
        """
        self._read_plans()
        if not self._read:
            self._warn_without_plans()
        self._release_late()
        for claims in by_table(self._claims_to_keep()):
            with self._logged("the claims of the run got no heartbeat"):
                self._judge(claims, self._client.tiering.heartbeat(claims, retry=False))
        if self._is_new:
            self._is_new = False
            self._release_unplanned()
        return bool(self._lost)

    def claim_again(self) -> int:
        """Claims lost tables that are due again. Returns how many.

        Sends the heartbeats of all claims meanwhile, because snapshots are leased one by one.
        """
        before, self._refused = {plan.claim for plan in self._again}, []
        failed: dict[TablePath, PlanFile] = {}
        with self._logged("a lost claim was not taken again"):
            self._lost = {
                path: plan for path, plan in self._lost.items() if waits_for_claim(self._uri(plan))
            }
            with Heartbeats(self._client.tiering, self._interval_s) as heartbeats:
                for claim in self._claims_to_keep():
                    heartbeats.add(claim)
                for claim in self._new_claims():
                    heartbeats.add(claim)
                    self._continue(claim, failed)
        self._lost.update(failed)
        # Only now: the coordinator would assign a released table again at once, to this session.
        for claim, why in self._refused:
            self._release(claim, why)
        return sum(plan.claim not in before for plan in self._again)

    def stop(self) -> None:
        """Ends :meth:`claim_again` after the table whose snapshots it leases. For any thread."""
        self._stopping.set()

    @property
    def is_unconfirmed(self) -> bool:
        """Whether new claims wait for :meth:`confirm_again`."""
        return bool(self._again)

    def confirm_again(self) -> None:
        """Leaves the new claims to the run. Call it if drop_lease had not started after them."""
        self._again = []

    def release_again(self) -> None:
        """Releases the unconfirmed claims, because the run or the trigger ends.

        That is the snapshots, too: drop_lease may have dropped the lease before they were leased.
        """
        for plan in self._again:
            begun = False
            with self._logged("the start of a tier task cannot be read", str(plan.claim.path)):
                begun = has_begun(self._uri(plan))
            if not begun and self._release(plan.claim, ENDED):
                self._release_snapshots(plan)
        self._again = []

    def summary(self) -> str:
        """One line about the work done."""
        return f"{len(self._read)} claims kept, {self._lost_count} lost before their tier task"

    def _read_plans(self) -> None:
        """Finds new plans. Claims are kept also while the work folder cannot be read."""
        with self._logged("the plans of the run cannot be read"):
            files: dict[str, set[str]] = {}
            for uri in run_files(self._work_uri, self._lease_id):
                _, folder, name = uri.rsplit("/", 2)
                files.setdefault(folder, set()).add(name)
                if name != "plan.json" or uri in self._read:
                    continue
                with self._logged("one of the run's plans cannot be read", uri):
                    plan = PlanFile.from_json(read_json(uri) or {})
                    self._read.add(uri)
                    self._kept[plan.claim] = plan
            self._files = files

    def _warn_without_plans(self) -> None:
        """Logs once that the run has claims, and its plans are not seen here.

        acquire_lease writes a plan some seconds after its claim.
        """
        self._planless += 1
        if self._planless < PLANLESS_BEATS or self._planless_logged:
            return
        with self._logged("the claims of the run cannot be listed"):
            if claims := self._client.tiering.claims_of(self._lease_id):
                self._planless_logged = True
                log.warning(
                    "%d claims of the run are not kept: the triggerer sees no plan in %s/%s;"
                    " work_uri must be storage that the triggerer and all workers share",
                    len(claims),
                    self._work_uri.rstrip("/"),
                    self._lease_id,
                )

    def _release_late(self) -> None:
        """Releases claims that came too late: the tier task has begun without them.

        At the second heartbeat: a task that has noticed a claim begins it within seconds.
        """
        late: set[Claim] = set()
        for folder, names in self._files.items():
            has_task = names & {"started.json", "ended.json"}
            if "claimed-again.json" not in names or not has_task or folder in self._followed:
                continue
            with self._logged("the files of a claim cannot be read", folder):
                entry = replacement(
                    f"{self._work_uri.rstrip('/')}/{self._lease_id}/{folder}/plan.json"
                )
                if entry is None:
                    continue
                if is_started(entry["plan_uri"]):
                    self._followed.add(folder)
                    continue
                claim = claim_of(entry)
                late.add(claim)
                if claim in self._late:
                    mark_ended(entry["plan_uri"])
                    self._release(claim, LATE)
        self._late = late

    def _claims_to_keep(self) -> list[Claim]:
        """The claims whose own tier task sends no heartbeats: before, between and after tries."""
        claims = []
        for plan in self._kept.values():
            at_work = False
            with self._logged("the start of a tier task cannot be read", str(plan.claim.path)):
                uri = self._uri(plan)
                at_work = is_at_work(uri, self._files.get(uri.rsplit("/", 2)[1], ()))
            if not at_work:
                claims.append(plan.claim)
        return claims

    def _judge(self, claims: Iterable[Claim], answers: Mapping[int, FlussError | None]) -> None:
        for claim in claims:
            error = answers[claim.table_id]
            # Once, it may be any error of the coordinator. Twice, the table is in no round.
            unknown = isinstance(error, UnknownServerError)
            twice = unknown and claim in self._unknown
            (self._unknown.add if unknown else self._unknown.discard)(claim)
            if error is not None and (isinstance(error, CLAIM_LOST) or twice):
                with self._logged("the end of a claim was not judged", str(claim.path)):
                    self._ended(self._kept[claim], error)

    def _ended(self, plan: PlanFile, error: FlussError) -> None:
        """Decides whether a claim was reported, or lost before its tier task started."""
        path = plan.claim.path
        waits = waits_for_claim(self._uri(plan))
        del self._kept[plan.claim]
        if not waits:
            self._past.add(path)
            return
        log.warning("%s: the claim was lost before its tier task: %s", path, error)
        self._lost_count += 1
        if not isinstance(error, TableNotExist):
            self._lost[path] = plan

    def _release_unplanned(self) -> None:
        """Releases what a killed keeper claimed for tier tasks that did not wait for it."""
        with self._logged("the claims of the run cannot be listed"):
            for claim in self._unplanned(self._past - {*self._lost}):
                self._release(claim, LATE)

    def _unplanned(self, paths: Collection[TablePath]) -> list[Claim]:
        """The run's claims of these tables that have no plan: a killed keeper had them last.

        On an Apache Fluss cluster these may have ended without a report.
        """
        held = self._client.tiering.claims_of(self._lease_id) if paths else ()
        return [
            claim
            for claim in held
            if claim.path in paths
            and read_json(plan_uri(self._work_uri, self._lease_id, claim)) is None
        ]

    def _new_claims(self) -> Iterator[Claim]:
        """Claims of lost tables: first those that a killed keeper has left without a plan."""
        if found := self._unplanned(self._lost):
            answers = self._client.tiering.heartbeat(found)
            yield from (claim for claim in found if answers[claim.table_id] is None)
        with self._client.tiering.claim_session([*self._lost], by=self._lease_id) as waiting:
            while self._lost and not self._stopping.is_set():
                if (claim := waiting.next()) is None:
                    break
                failpoint("airflow.keep.after_claim")
                yield claim

    def _continue(self, claim: Claim, failed: dict[TablePath, PlanFile]) -> None:
        """Replaces a lost claim by a new one, or refuses the new one.

        :param failed: receives the lost claims whose replacement failed and may be tried again.
        """
        before = self._lost.pop(claim.path, None)
        if before is None:
            self._refused.append((claim, "the run has this table"))
            return
        if self._stopping.is_set():
            self._refused.append((claim, ENDED))
            return
        try:
            self._renew(before, replace(before, claim=claim))
        except Exception as error:  # file systems raise errors of many kinds
            why = reason_text(f"the run cannot continue it: {error}")
            self._refused.append((claim, why))
            if not isinstance(error, LEASE_REFUSED):
                failed[claim.path] = before

    def _renew(self, before: PlanFile, plan: PlanFile) -> None:
        """Leases the snapshots of a table that was claimed again, and writes its plan."""
        snapshots = leasing.lease_snapshots(self._client, self._lease_id, plan.claim)
        plan = replace(plan, snapshots=snapshots)
        uri = self._uri(plan)
        try:
            # The plan comes last: with it the new claim counts, see claimed_again.py.
            replace_claim(self._uri(before), claimed_table(plan, uri))
            write_json(uri, plan.to_json())
        except Exception:
            self._release_snapshots(plan)
            raise
        failpoint("airflow.keep.after_plan")
        log.info("%s: claimed again, tiering epoch %d", plan.claim.path, plan.claim.tiering_epoch)
        self._kept[plan.claim] = plan
        # Not both: releasing the lost claim's snapshots would take those of the new one.
        self._again = [one for one in self._again if one.claim != before.claim] + [plan]

    def _release_snapshots(self, plan: PlanFile) -> None:
        if plan.snapshots:
            self._client.leases.try_release(self._lease_id, [s.bucket for s in plan.snapshots])

    def _release(self, claim: Claim, reason: str) -> bool:
        """Releases a claim. Returns False if it may still be held."""
        try:
            self._client.tiering.release(claim, Reason.from_text(f"released: {reason}"))
            log.info("%s: the claim was released: %s", claim.path, reason)
        except CLAIM_LOST:
            pass  # it has ended in the meantime
        except FlussError as error:
            log.warning("%s: the claim was not released: %s", claim.path, error)
            return False  # a claim with a plan keeps its heartbeats until the run ends
        self._kept.pop(claim, None)
        return True

    def _uri(self, plan: PlanFile) -> str:
        return plan_uri(self._work_uri, self._lease_id, plan.claim)

    @contextmanager
    def _logged(self, what: str, where: str = "") -> Iterator[None]:
        """Logs an error of its block, once in a row. File systems raise errors of many kinds."""
        key = f"{what}: {where}" if where else what
        try:
            yield
            self._troubles.pop(key, None)
        except Exception as error:
            text = f"{key}: {mask(str(error))}"
            if self._troubles.get(key) != text:
                log.warning("%s", text)
            self._troubles[key] = text
