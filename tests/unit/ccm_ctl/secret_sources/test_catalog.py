"""The texts that name a source."""

from __future__ import annotations

import sys

import pytest

from ccm_agent.model.errors import InputError, UsageError
from ccm_ctl.secret_sources.catalog import open_source


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("age", id="no place"),
        pytest.param("age:", id="an empty place"),
        pytest.param("age:#key", id="a field alone"),
        pytest.param("age:secrets.age#", id="an empty field"),
        pytest.param("age:a\nb#c", id="a line break"),
        pytest.param("s3cr3t-value", id="a value by mistake"),
        pytest.param("pass:s3cr3t-value", id="another kind"),
    ],
)
def test_text_that_names_no_source_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="use age:FILE#KEY") as caught:
        open_source(text, identity="key.txt", environ={})

    assert "s3cr3t-value" not in str(caught.value)


def test_file_of_age_without_a_key_is_refused() -> None:
    with pytest.raises(UsageError, match="--identity FILE"):
        open_source("age:secrets.age#a", identity="", environ={})


def test_missing_package_is_answered_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_source("age:secrets.age#a", identity="key.txt", environ={})
    monkeypatch.delitem(sys.modules, "pyrage", raising=False)
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(InputError, match=r"pip install 'ccm-fleet\[age\]'"):
        open_source("age:secrets.age#a", identity="key.txt", environ={})


def test_missing_program_is_answered_with_where_it_is() -> None:
    with pytest.raises(InputError, match=r"https://getsops\.io"):
        open_source("sops:secrets.yaml#a", identity="", environ={"PATH": "/nonexistent"})
