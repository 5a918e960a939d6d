"""What `ccm ensure scaffold` makes of what it is given."""

from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import UsageError
from ccm_agent.resources.scaffold.command import gather


def test_name_and_source_alone_are_a_scaffold_with_jet(tmp_path: Path) -> None:
    assert gather({"name": "/out", "source": str(tmp_path)}) == {
        "name": "/out",
        "source": str(tmp_path),
        "ensure": "present",
        "engine": "jet",
    }


def test_commands_stand_in_the_order_given(tmp_path: Path) -> None:
    values = gather({"name": "/out", "source": str(tmp_path), "post": {"*.sh": "chmod +x {}", "a": "true"}})

    assert values["post"] == [{"*.sh": "chmod +x {}"}, {"a": "true"}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "SOURCE: give a directory of templates"),
        ({"source": "/no/such"}, "SOURCE: /no/such is not a directory"),
        ({"source": "/etc/passwd"}, "SOURCE: /etc/passwd is not a directory"),
    ],
)
def test_a_source_that_is_not_a_directory_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        gather({"name": "/out", **given})

    assert caught.value.message == message


def test_removal_needs_no_source() -> None:
    assert gather({"name": "/out", "source": "/no/such", "ensure": "absent"})["ensure"] == "absent"
