"""The list of resources that a Jet template prints."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ccm_agent.engine.jet_list import resources_from_jet
from ccm_agent.manifest.document import make_document
from ccm_agent.model.errors import ManifestError


class Printed:
    """Expressions whose template prints what a test says."""

    def __init__(self, text: str) -> None:
        self._text = text

    def jet_file(self, name: str) -> str:
        return self._text


def resources(printed: str) -> list[Any]:
    document = make_document(b"", "m.yaml", "/work")
    return resources_from_jet("r.jet", cast("Any", Printed(printed)), document)[0]


@pytest.mark.parametrize(
    "printed", ["- note: {name: a}\n", "[{note: {name: a}}]", '[{"note": {"name": "a"}}]']
)
def test_resources_may_be_printed_as_yaml_of_either_style_or_json(printed: str) -> None:
    assert resources(printed) == [{"note": {"name": "a"}}]


@pytest.mark.parametrize(
    ("printed", "what"),
    [
        pytest.param(" \n", "nothing", id="white space"),
        pytest.param("# no notes here\n", "nothing", id="a comment"),
        pytest.param("[]", "nothing", id="an empty list"),
        pytest.param("-\n", "nothing", id="a list of nothing"),
        pytest.param("note: {name: a}", "no list", id="a mapping"),
    ],
)
def test_a_template_that_prints_no_resources_is_an_error(printed: str, what: str) -> None:
    with pytest.raises(ManifestError, match=rf"the template r\.jet printed {what}: it must print resources"):
        resources(printed)
