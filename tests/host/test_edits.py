"""Edits of real files with real checkers. What an edit does with valid content: test_every_type.py."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


def test_an_invalid_content_is_not_written(only: Callable[[str], testenv.Node], program: str) -> None:
    machine = only("apt")
    machine.run("sh", "-c", r"printf '#!/bin/sh\necho \351 a\n' > /root/job.sh")
    before = machine.path("/root/job.sh").read_bytes()
    edit = {"/root/job.sh": {"line": "if true", "validate": "/bin/sh -n %s"}}
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": [{"edit": [edit]}]}}))

    machine.run(program, "apply", "/root/m.yaml", "--events", "/root/events", check=False)

    told = machine.path("/root/events").read_text()
    assert "the new content is not valid, so nothing was written: `/bin/sh` ended with exit code" in told
    assert "Syntax error" in told
    assert machine.path("/root/job.sh").read_bytes() == before
    assert machine.run("sh", "-c", "ls -A /root | grep -c ccm-", check=False).stdout == "0\n"
