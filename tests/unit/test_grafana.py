"""The Grafana dashboard: its queries parse, and ask only for the chosen agents. tests/e2e/test_metrics.py holds the names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

PANELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[2] / "deploy/grafana/agents.json").read_text()
)["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
CHOSEN = {("job", "$job"), ("instance", "$instance")}


def selectors(expression: promql_parser.Expr) -> list[promql_parser.VectorSelector]:
    """The parts of a query that name a metric."""
    found: list[promql_parser.VectorSelector] = []

    def visit(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)

    promql_parser.walk(expression, visit)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_query_parses_and_asks_for_the_chosen_agents(query: str) -> None:
    expression = promql_parser.parse(query.replace("$__rate_interval", "1m"))

    named = selectors(expression)

    assert named
    assert all({(one.name, one.value) for one in part.matchers.matchers} >= CHOSEN for part in named)


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_legend_of_a_panel_names_labels_that_its_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = re.search(r"\bby \(([a-z, ]+)\)", target["expr"])
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))

        assert labels <= (set(kept[1].split(", ")) if kept else {"instance"})


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in PANELS
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
