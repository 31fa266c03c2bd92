"""Says why tables were not tiered, at the end of a tier task."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.errors import DriverLost, DriverRefused, SluiceError, StoppedByUser
from sluice.model import Reason
from sluice_airflow.account import not_tiered
from sluice_airflow.airflow_names import AirflowException, AirflowFailException
from sluice_airflow.group_submit import GroupSubmitHook
from sluice_airflow.operators.pack_watch import SAID

REASONS_IN_ERROR_MAX = 5


class TierFailed(AirflowException):
    """Some tables were not tiered. A retry may succeed."""


class TierNotRetried(AirflowFailException):
    """Some tables were not tiered, and a retry cannot succeed."""


def why_no_outcome(hook: GroupSubmitHook) -> SluiceError:
    """What to say of tables without a result and without a reason, after spark-submit's end."""
    code = f"spark-submit's exit code is {hook.exit_code}"
    said = f"{SAID}{hook.telling_line}" if hook.telling_line else ""
    name = hook.driver_name
    if hook.deploy_mode != "cluster":
        return DriverLost(f"the Spark driver ended without a result or a reason ({code}){said}")
    if hook.driver_exit_code is not None:
        return DriverLost(
            f"the Spark driver {name} ended without a result or a reason"
            f" (its exit code is {hook.driver_exit_code}, {code}){said}"
        )
    if not name and (hook.exit_code or 0) > 0:
        return DriverRefused(f"spark-submit started no driver on the cluster ({code}){said}")
    return DriverLost(
        f"spark-submit ended before the Spark driver {name or 'on the cluster'} left a result or a"
        f" reason ({code}); the driver may still run on the cluster{said}"
    )


def stop_of(state: str | None) -> StoppedByUser | None:
    """The user's act that a task's state shows while Airflow kills it; None: it was none."""
    if state in ("success", "failed"):
        return StoppedByUser(f"a user marked the task tier or its run as {state}")
    if state == "skipped":  # Airflow's, for each task that runs when that time has passed
        return StoppedByUser(
            "the dagrun_timeout of the run passed, or a user skipped the task tier"
        )
    if state == "restarting":
        return StoppedByUser("a user cleared the task tier")
    return None


def tier_error(failures: Sequence[tuple[str, Reason]], tables: int) -> AirflowException:
    """The error with which a task ends; its class decides whether Airflow retries the task.

    :param failures: the failed tables with their reasons.
    :param tables: how many tables the task has.
    """
    kind = TierFailed if any(reason.retryable for _, reason in failures) else TierNotRetried
    shown = [f"{table}: {reason}" for table, reason in failures[:REASONS_IN_ERROR_MAX]]
    if tables == 1:
        return kind(shown[0])
    if len(failures) > len(shown):
        shown.append(f"and {len(failures) - len(shown)} more")
    return kind("\n".join([not_tiered(len(failures), tables), *shown]))
