"""One environment for each choice of extras, outside the checkout, with the wheel in it."""

from __future__ import annotations

import pytest

from tests.support.programs.built_wheel import Environment, locked, new_environment


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel without extras."""
    made = new_environment(tmp_path_factory.mktemp("base") / "env")
    made.install(*locked())
    return made


@pytest.fixture(scope="session")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What the package index's page installs to try it: the server, and Spark."""
    made = new_environment(tmp_path_factory.mktemp("one_machine") / "env")
    made.install(*locked("server", "spark"))
    return made


@pytest.fixture(scope="session")
def page_alone(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The extra that must be enough for `sluice ui`."""
    made = new_environment(tmp_path_factory.mktemp("page") / "env")
    made.install(*locked("ui"))
    return made


@pytest.fixture(scope="session")
def airflow_alone(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The extra that must be enough for the DAG."""
    made = new_environment(tmp_path_factory.mktemp("airflow") / "env")
    made.install(*locked("airflow"))
    return made
