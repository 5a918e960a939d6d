"""Every example of the reference pages of Jet, Go and Jinja templates does what its page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.codec import decode_yaml
from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.go.builtins import BUILTINS
from ccm_agent.templates.engines.go.methods import TIME_METHODS, VERSION_METHODS
from ccm_agent.templates.engines.go.sprig import functions
from ccm_agent.templates.engines.jet.builtins import builtins
from ccm_agent.templates.env import TEMPLATE_FUNCTIONS, Environment

REFERENCE = Path(__file__).parents[4] / "docs" / "reference"
PAGES = {"jet": "jet.md", "go": "go-templates.md", "jinja": "jinja.md"}


def blocks(page: str, language: str) -> list[str]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


def examples() -> list[Any]:
    return [
        pytest.param(engine, *line.rsplit(" => ", 1), id=f"{engine}: {line.rsplit(' => ', 1)[0]}")
        for engine, page in PAGES.items()
        for block in blocks(page, engine)
        for line in block.splitlines()
    ]


@pytest.mark.parametrize(("engine", "template", "printed"), examples())
def test_examples_render_as_documented(engine: str, template: str, printed: str) -> None:
    page = PAGES[engine] if engine != "jinja" else PAGES["go"]
    values = decode_yaml(blocks(page, "yaml")[0], page)
    assert isinstance(values, dict)
    environment = Environment(**values)

    if printed == "error":
        with pytest.raises(TemplateError):
            environment.render(engine, template)
    else:
        assert environment.render(engine, template).strip() == printed.strip()


def named(page: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", (REFERENCE / page).read_text(encoding="utf-8")))


def test_the_page_of_jet_names_every_function() -> None:
    assert {*builtins(), *TEMPLATE_FUNCTIONS["jet"]} - named("jet.md") == set()


def test_the_page_of_go_names_every_function_and_method() -> None:
    names = {*BUILTINS, *functions(), *TEMPLATE_FUNCTIONS["go"], *TIME_METHODS, *VERSION_METHODS}
    musts = {name for name in names if name.startswith("must") and name[4].lower() + name[5:] in functions()}

    assert names - musts - named("go-templates.md") == set()
