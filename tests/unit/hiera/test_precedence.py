"""Orders in which a general override replaces a specific one."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.hiera.explain import SourceDocument, explain
from ccm_agent.hiera.precedence import reversals

ROLE = "role:${ Facts.role }"
OVERRIDES: dict[str, Any] = {
    "role:web": {"port": 80, "tls": {"min": "1.3"}, "users": ["a"], "same": 1},
    "role:db": {"port": 5432},
    "common": {"port": 8080, "tls": {"min": "1.2"}, "users": ["b"], "same": 1, "motd": "x"},
}


def document(order: list[str], merge: str = "deep", **more: Any) -> dict[str, Any]:
    return {"hierarchy": {"order": order, "merge": merge}, "overrides": OVERRIDES, **more}


def test_a_general_entry_behind_a_specific_one_replaces_its_values() -> None:
    found = [(one.general, one.specific, one.path) for one in reversals(document([ROLE, "common"]))]

    assert found == [
        ("common", "role:web", ("port",)),
        ("common", "role:web", ("tls", "min")),
        ("common", "role:db", ("port",)),
    ]


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(document(["common", ROLE]), id="the specific one is last"),
        pytest.param(document([ROLE, "common"], "first"), id="the first one wins"),
        pytest.param(document(["role:web", "common"]), id="both are for all nodes"),
        pytest.param(document([ROLE, "site:${ Facts.site }"]), id="both are for some nodes"),
        pytest.param(document(["rack:${ Facts.rack }-${ Facts.row }", "common"]), id="names no override"),
        pytest.param(document([ROLE, "nothing"]), id="no such override"),
        pytest.param({"hierarchy": {"order": "x", "merge": "deep"}}, id="malformed order"),
        pytest.param(
            {"hierarchy": {"order": [1, None], "merge": "deep"}, "overrides": OVERRIDES}, id="numbers"
        ),
        pytest.param({"hierarchy": []}, id="malformed hierarchy"),
        pytest.param([], id="no mapping"),
    ],
)
def test_other_orders_are_left_alone(root: object) -> None:
    assert list(reversals(root)) == []


@pytest.mark.parametrize(
    ("entry", "is_named"),
    [
        ("role:${ Facts.role }", True),
        ("${ Facts.kind }:web", True),
        ("${ Facts.kind }:{{ Facts.role }}", True),
        ("r${ Facts.a }l${ Facts.b }:w${ Facts.c }b", True),
        ("role:web${ Facts.none }web", False),
        ("${ Facts.a }db", False),
    ],
)
def test_an_entry_names_overrides_that_match_its_literal_parts(entry: str, is_named: bool) -> None:
    found = {one.specific for one in reversals(document([entry, "common"]))}

    assert ("role:web" in found) is is_named


def test_explain_warns_where_the_order_decided_the_value() -> None:
    text = (
        'hierarchy: {merge: deep, order: ["role:${ Facts.role }", common]}\n'
        "overrides:\n  role:web: {port: 80}\n  role:db: {port: 5432}\n  common: {port: 8080, motd: x}\n"
    )

    def warned(key: str, role: str) -> tuple[str, ...]:
        return explain(key, [SourceDocument(name="site.yaml", text=text)], {"role": role}).warnings

    assert warned("port", "web") == (
        "site.yaml: with `merge: deep` the last entry of `order` wins, so `common` replaces `port` of `role:web`: "
        "move `common` before `role:${ Facts.role }`, or use `merge: first`",
    )
    assert (warned("motd", "web"), warned("port", "mail")) == ((), ())
