"""The error tree carries what the sentence leaves out."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import CommandError, DesiredStateError, HostError


@pytest.mark.parametrize("kind", [HostError, CommandError, DesiredStateError])
def test_an_error_of_the_host_keeps_the_commands_output(kind: type[HostError]) -> None:
    err = kind("it failed", output="line 1\nline 2\n")

    assert (str(err), err.output) == ("it failed", "line 1\nline 2\n")
