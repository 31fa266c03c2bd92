"""Says why tables were not tiered, at the end of a tier task."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.errors import (
    DriverLost,
    DriverRefused,
    SluiceError,
    SparkSettingsWrong,
    StoppedByUser,
)
from sluice.model import Reason
from sluice_airflow.airflow_api.airflow_names import AirflowException, AirflowFailException
from sluice_airflow.outcomes.account import not_tiered
from sluice_airflow.submit.driver_end import ended_by
from sluice_airflow.submit.process_group import GroupSubmitHook
from sluice_airflow.tier.pack_watch import SAID

REASONS_IN_ERROR_MAX = 5
NOT_STARTED = "spark-submit could not be started"
LOST = "the Spark driver ended without a result or a reason"
CANNOT_START = "Spark cannot start with its settings"


class TierFailed(AirflowException):
    """Some tables were not tiered. A retry may succeed."""


class TierNotRetried(AirflowFailException):
    """Some tables were not tiered, and a retry cannot succeed."""


def why_no_outcome(hook: GroupSubmitHook, *, is_stopped: bool = False) -> SluiceError:
    """What to say of tables without a result and without a reason, after spark-submit's end.

    :param is_stopped: whether the task itself has ended the driver.
    """
    if hook.is_refused:
        return DriverRefused(f"{NOT_STARTED}: {hook.why_ended}")
    if hook.ending.is_setting and not hook.driver_name and not ended_by(hook.exit_code):
        return SparkSettingsWrong(f"{CANNOT_START} ({_code(hook)}){_said(hook)}")
    return why_lost(hook, is_stopped=is_stopped)


def why_lost(hook: GroupSubmitHook, *, is_stopped: bool = False) -> SluiceError:
    """As :func:`why_no_outcome`, of a driver that could start."""
    code, said, name = _code(hook), _said(hook), hook.driver_name
    if hook.deploy_mode != "cluster":
        by = ": this task has ended it" if is_stopped else _ended_by(hook)
        return DriverLost(f"{LOST} ({code}){by}{'' if by and hook.ending.is_aftermath else said}")
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


def _code(hook: GroupSubmitHook) -> str:
    return f"spark-submit's exit code is {hook.exit_code}"


def _said(hook: GroupSubmitHook) -> str:
    return f"{SAID}{hook.why_ended}" if hook.why_ended else ""


def _ended_by(hook: GroupSubmitHook) -> str:
    """Who ended a driver on this machine that a signal ended, as far as it can be known.

    The counters of the kernel do not say whom it has ended.
    """
    signal = ended_by(hook.exit_code)
    if signal != "SIGKILL":
        return f": {signal} ended it, which this task has not sent" if signal else ""
    full = None if hook.oom_kills is None else hook.oom_kills.full()
    if full:
        return f": SIGKILL ended it, probably the kernel's, because {full} was full"
    if full is None:
        return ": SIGKILL ended it, which this task has not sent"
    return ": SIGKILL ended it, which neither this task nor the kernel has sent"


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
    reasons = {reason for _, reason in failures}
    kind = TierFailed if any(reason.retryable for _, reason in failures) else TierNotRetried
    shown = [f"{table}: {reason}" for table, reason in failures[:REASONS_IN_ERROR_MAX]]
    if len(reasons) == 1 and (reason := failures[0][1]).kind == SparkSettingsWrong.__name__:
        return kind(f"{not_tiered(len(failures), tables)[:-1]}: {reason}")
    if tables == 1:
        return kind(shown[0])
    if len(failures) > len(shown):
        shown.append(f"and {len(failures) - len(shown)} more")
    return kind("\n".join([not_tiered(len(failures), tables), *shown]))
