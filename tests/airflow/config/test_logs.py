"""What Sluice logs inside Airflow has no secret, and no text of others begins a line."""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil

import pytest
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger
from structlog.testing import capture_logs

import sluice_airflow
from sluice.masking import know
from sluice_airflow.airflow_api.logs import MaskedLogs
from sluice_airflow.operators.open import SluiceOpenOperator
from sluice_airflow.operators.tier import SluiceTierOperator

pytestmark = pytest.mark.airflow

SAID = "catalog said \x1b]0;t\x07 password=hunter22 planted-4731\r\nINFO Injected: line\u202e"
SHOWN = "cannot: catalog said \\x1b]0;t\\x07 password=*** ***\n  INFO Injected: line\\u202e"


@pytest.fixture(autouse=True)
def _planted() -> None:
    know(["planted-4731"])


@pytest.mark.parametrize("name", ["sluice_airflow.claims.leasing", "sluice.rounds.commit.commit"])
def test_records_of_modules(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger(name).warning("cannot: %s", OSError(SAID))
    assert caplog.messages == [SHOWN]


def test_a_copy_of_a_record(caplog: pytest.LogCaptureFixture) -> None:
    """Airflow's formatter makes one of each."""
    logging.getLogger("sluice.x").warning("cannot: %s", OSError(SAID))
    for name in ("sluice.x", "others"):
        made = logging.makeLogRecord({**vars(caplog.records[0]), "name": name})
        assert made.getMessage() == SHOWN


def test_a_traceback_is_part_of_its_record(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise OSError(SAID)
    except OSError:
        logging.getLogger("sluice.page.requests.guard").exception("GET / failed, 100%")
    [record] = caplog.records
    assert record.exc_info is None
    first, *others = record.getMessage().splitlines()
    assert first == "GET / failed, 100%"
    assert others[-1].startswith("  INFO Injected")
    assert all(one.startswith("  ") for one in others)
    assert "planted" not in caplog.text


def test_a_message_that_cannot_be_formatted(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("sluice_airflow.claims.leasing").warning("%d rows", SAID)
    assert caplog.messages == ["a log message of Sluice cannot be formatted"]
    assert "planted" not in capsys.readouterr().err


def test_records_of_others_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("sluicegate").warning("%s", SAID)
    assert caplog.messages == [SAID]


def test_the_log_of_an_operator() -> None:
    tier = SluiceTierOperator(task_id="tier", entry={"label": "", "tables": []})
    for operator in (tier, SluiceOpenOperator(task_id="open")):
        with capture_logs() as logged:
            operator.log.warning("cannot: %s", OSError(SAID))
            operator.log.log(logging.ERROR, "%d rows, 100 %%", 3)
            operator.log.info("100%")
        assert [one["event"] for one in logged] == [SHOWN, "3 rows, 100 %", "100%"]


def test_all_operators_and_triggers_have_such_a_log() -> None:
    seen = set()
    for found in pkgutil.walk_packages(sluice_airflow.__path__, "sluice_airflow."):
        module = importlib.import_module(found.name)
        for _, one in inspect.getmembers(module, inspect.isclass):
            is_logging = issubclass(one, BaseOperator | BaseTrigger)
            if is_logging and one.__module__.startswith("sluice_airflow."):
                seen.add(one.__name__)
                assert issubclass(one, MaskedLogs), one
    assert {"SluiceTierOperator", "SluiceTableSensor", "KeepClaimsTrigger"} <= seen
