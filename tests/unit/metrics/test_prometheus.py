"""The alert rules and the Grafana board, checked by Prometheus's own tool."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.cli.main import cli
from tests.support.clusters.promtool import promtool

HERE = Path(__file__).parent
RULES = HERE.parents[2] / "docs/prometheus-sluice.yaml"
BOARD = HERE.parents[2] / "docs/grafana-sluice.json"


def checked(*arguments: str | Path) -> None:
    done = subprocess.run([promtool(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return rules


@pytest.mark.slow
def test_each_alert_fires_when_it_should() -> None:
    checked("check", "rules", RULES)
    checked("test", "rules", HERE / "alerts.yaml")
    tested = {
        case["alertname"]
        for test in yaml.safe_load((HERE / "alerts.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert tested == {rule["alert"] for rule in alerts()}


def test_each_alert_says_what_to_do() -> None:
    for rule in alerts():
        description = rule["annotations"]["description"]
        commands = re.findall(r"`sluice ([a-z-]+)", description)
        assert commands, rule
        assert set(commands) <= set(cli.commands), commands
        if rule["alert"].startswith("SluiceTable"):
            assert "`sluice status {{ $labels.database }}.{{ $labels.table }}`" in description
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_the_queries_of_the_board_are_promql(tmp_path: Path) -> None:
    board = json.loads(BOARD.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$\w+", ".*", query)}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked("check", "rules", file)
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    fields = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(fields) == len(set(fields)), "panels overlap"
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
