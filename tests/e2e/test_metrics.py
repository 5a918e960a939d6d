"""What a monitoring system reads of a real agent process."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from ccm_agent.testing.nats_server import free_ports
from tests.support.fleet import TOP, a_file, fleet, manifest

NAME = re.compile(r"\b(?:choria_ccm|process)_[a-z_]+[a-z]\b")
"""A metric, as the documentation and the dashboard write it."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_metrics_count_the_agents_runs(tmp_path: Path) -> None:
    (port,) = free_ports(1)

    def text() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def numbers() -> dict[str, float]:
        return {
            series: float(value) for series, value in re.findall(r"^([^#].*) (\S+)$", text(), re.MULTILINE)
        }

    with fleet(tmp_path) as built:
        site = built.write("own.yaml", manifest(a_file("own")))
        built.add("web1", monitor_port=port, manifests=[site])
        agent = built.agents["web1"]
        built.wait_for((agent.files / "own").exists, "the first converge")
        path = built.write("asked.yaml", manifest(a_file("asked")))
        built.ctl("apply", path, "--targets", "node=web1", "--yes")
        built.wait_for(lambda: numbers()["choria_ccm_agent_spool_events"] == 0, "the spool to be empty")

        found = numbers()
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text(), re.MULTILINE))

    assert set(kinds) == set(NAME.findall((TOP / "docs/concepts/metrics.md").read_text()))
    ends = {name: ("_sum", "_count") if kind == "summary" else ("",) for name, kind in kinds.items()}
    shown = set(NAME.findall((TOP / "deploy/grafana/agents.json").read_text()))
    assert shown <= {f"{name}{end}" for name in kinds for end in ends[name]}
    resource = f'type="file",name="{agent.files}/asked"'
    assert {name: found[name] for name in found if name.endswith((f"{{{resource}}}", '",name="asked"}'))} == {
        f"choria_ccm_resource_state_total_count{{{resource}}}": 1,
        f"choria_ccm_resource_state_changed_count{{{resource}}}": 1,
    }
    runs = {name: number for name, number in found.items() if name.startswith("choria_ccm_agent_runs_total")}
    assert runs == {
        'choria_ccm_agent_runs_total{action="apply",cause="interval",state="changed"}': 1,
        'choria_ccm_agent_runs_total{action="apply",cause="request",state="changed"}': 1,
    }
    assert found[f'choria_ccm_agent_apply_duration_seconds_count{{manifest="{site}"}}'] == 1
    assert found["choria_ccm_agent_connected"] == 1
    assert found["choria_ccm_agent_disabled"] == 0
    # start, resource and summary of both runs, the decision about the request, and the agent's own start
    assert found["choria_ccm_agent_events_sent_total"] == 8
    assert found["choria_ccm_facts_gather_duration_seconds_count"] >= 1
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_open_fds"] > 3
