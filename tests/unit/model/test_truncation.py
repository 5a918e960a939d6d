import json
from datetime import UTC, datetime

import pytest

from ccm_agent.model.formats.truncation import MARK, encode_event, encode_summary
from ccm_agent.model.health import HealthResult
from ccm_agent.model.outcome import SESSION_SUMMARY, FailedResource, SessionSummary
from ccm_agent.model.resource_diff import FileDiff, PropertyChange, ResourceDiff
from ccm_agent.model.wire import EVENT_LIMIT_BYTES
from tests.support.agent import resource_event


def test_an_event_that_fits_stays_as_it_is() -> None:
    event = resource_event("/a", failed=True, error=["no"], output="x" * 8000)

    assert json.loads(encode_event(event))["output"] == "x" * 8000
    assert "cut" not in json.loads(encode_event(event))


def test_long_output_is_cut_first_keeps_its_end_and_is_marked() -> None:
    event = resource_event("/a", failed=True, error=["no"], output="x" * 100_000 + "the end")

    body = encode_event(event)

    told = json.loads(body)
    assert len(body) <= EVENT_LIMIT_BYTES
    assert told["cut"] == ["output"]
    assert told["output"].startswith(MARK)
    assert told["output"].endswith("the end")
    assert told["error"] == ["no"]


def test_output_that_nearly_fits_loses_its_beginning_and_nothing_else_is_cut() -> None:
    event = resource_event("/a", output="x" * 64 * 1024, properties={"name": "/a", "content": "c" * 9000})

    told = json.loads(encode_event(event))

    assert told["output"] == MARK + "x" * 48 * 1024
    assert (told["cut"], told["properties"]) == (["output"], {"name": "/a", "content": "c" * 9000})


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"error": ["e" * 200_000]}, id="a long error"),
        pytest.param({"error": ["e" * 300] * 5000}, id="many errors"),
        pytest.param({"properties": {"content": "c" * 200_000, "name": "/a"}}, id="a long property"),
        pytest.param({"properties": {f"key{n}": "v" for n in range(20_000)}}, id="many properties"),
        pytest.param({"properties": {"a": {"b": {"c": ["d" * 100] * 5000}}}}, id="deep properties"),
        pytest.param({"status": ["s" * 100] * 5000}, id="a long state"),
        pytest.param({"noop_message": "n" * 100_000}, id="a long noop message"),
        pytest.param({"unmet_requirements": ["file#" + "x" * 100] * 5000}, id="many requirements"),
        pytest.param({"name": "n" * 100_000, "alias": "a" * 100_000}, id="a long name"),
        pytest.param(
            {"health_check": [HealthResult(status=2, output="o" * 100_000, name="c")]}, id="a long check"
        ),
        pytest.param({"output": "\u00e9\u4e2d" * 50_000}, id="text of several bytes a character"),
        pytest.param({"error": ['"\\\n\x01' * 20_000]}, id="text that JSON makes longer"),
    ],
)
def test_a_long_event_is_truncated_and_reports_the_fields(fields: dict[str, object]) -> None:
    body = encode_event(resource_event(**({"name": "/a"} | fields)))

    told = json.loads(body)
    assert len(body) <= EVENT_LIMIT_BYTES
    assert told["cut"]


def test_a_summary_keeps_its_numbers_and_all_failed_resources_with_less_output() -> None:
    failed = [
        FailedResource(resource=f"exec#{n}", error=["e" * 5000], code="host.command", output="o" * 8192)
        for n in range(20)
    ]
    summary = SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id="x",
        timestamp=datetime(2026, 11, 21, tzinfo=UTC),
        events_sent=22,
        failed_resources=20,
        failed=failed,
    )

    body = encode_summary(summary)

    told = json.loads(body)
    assert len(body) <= EVENT_LIMIT_BYTES
    assert (told["events_sent"], told["failed_resources"]) == (22, 20)
    assert [one["resource"] for one in told["failed"]] == [f"exec#{n}" for n in range(20)]


def test_the_lines_of_a_diff_are_cut_and_counted_and_the_event_fits() -> None:
    line = "+\x01" + "x" * 100 + "\n"
    diff = ResourceDiff(
        properties=[PropertyChange(property="mode", before="0600", after="0644")],
        files=[FileDiff(path="/a", text=line * 600), FileDiff(path="/b", text="+b\n")],
    )

    body = encode_event(resource_event("/a", properties={"content": "c" * 9000}, diff=diff))

    told = json.loads(body)
    assert len(body) <= EVENT_LIMIT_BYTES
    assert (told["cut"], told["properties"]) == (["diff"], {"content": "c" * 9000})
    first = told["diff"]["files"][0]
    assert first["text"].endswith("x\n")
    assert first["text"].count("\n") + first["left_out"] == 600
    assert told["diff"]["properties"] == [{"property": "mode", "before": "0600", "after": "0644"}]


def test_a_diff_of_very_many_files_fits() -> None:
    files = [FileDiff(path=f"/{'d' * 1000}/{number}", text="+x\n") for number in range(200)]

    body = encode_event(resource_event("/a", diff=ResourceDiff(files=files)))

    assert len(body) <= EVENT_LIMIT_BYTES
    assert json.loads(body)["diff"]["files_left_out"] == 180
