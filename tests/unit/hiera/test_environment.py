import pytest

from ccm_agent.hiera.environment import as_environment
from ccm_agent.model.errors import DataError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param('it\'s "q" $x\ny', 'it\'s "q" $x\ny', id="text as it is"),
        pytest.param(5, "5", id="whole number"),
        pytest.param(1234567.891, "1234567.891000", id="fraction"),
        pytest.param(True, "true", id="boolean"),
        pytest.param(None, "null", id="null"),
        pytest.param([1.5, 2.0, {"b": 1, "a": "<"}], '[1.5,2,{"a":"\\u003c","b":1}]', id="list"),
        pytest.param({}, "{}", id="mapping"),
    ],
)
def test_a_value_is_a_line(value: object, shown: str) -> None:
    assert as_environment({"a": value}) == f"HIERA_A={shown}\n"


def test_keys_are_sorted_and_in_upper_case() -> None:
    assert as_environment({"straße": 1, "a-b": 2}, "X") == "X_A-B=2\nX_STRAßE=1\n"


@pytest.mark.parametrize(("data", "line"), [("x", '"x"'), (None, "null"), ([1, "x"], '[1,"x"]')])
def test_what_has_no_keys_is_one_value(data: object, line: str) -> None:
    assert as_environment(data) == f"HIERA_VALUE={line}\n"


def test_a_number_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be written as JSON"):
        as_environment({"a": [float("nan")]})
