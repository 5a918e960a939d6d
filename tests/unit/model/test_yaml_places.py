"""Where a value stands in a document that libyaml alone would not read."""

import pytest

from ccm_agent.model import codec
from ccm_agent.model.errors import Place


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("log:\n  format: %h %t\nport: x\n", id="a value that begins with a percent sign"),
        pytest.param("listen:\n  [:80]\nport: x\n", id="one that begins with a colon"),
        pytest.param("list:\n-\ty\nport: x\n", id="a tab after a dash"),
    ],
)
def test_a_value_is_found_behind_what_had_to_be_mended(text: str) -> None:
    assert codec.locate(text, ("port",), "f.yaml") == Place("f.yaml", 3, 1, "$.port")
