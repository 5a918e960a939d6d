"""What `registrations()` gives, in each language that can ask for it."""

from __future__ import annotations

import json

import pytest

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.templates.env import Environment
from ccm_agent.templates.resolve import evaluate, render_text
from ccm_agent.templates.services import Services


def an_environment() -> Environment:
    entries = [
        RegistrationEntry(
            cluster="prod",
            service="prometheus",
            protocol="http",
            address=f"10.0.0.{number}",
            port=8080,
            priority=10 * number,
            annotations={"host": f"web{number}"},
            ttl="10m" if number == 1 else None,
        )
        for number in (1, 2)
    ]
    return Environment(registrations=lambda *_asked: Services(entries))


ASKED = '("prod", "http", "web", "*")'


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        (
            "jet",
            f"[[ range _, e := registrations{ASKED} ]]"
            "[[ e.Address ]]:[[ e.Port ]] [[ 256 - e.Priority ]] [[ e.Annotations.host ]];[[ end ]]",
        ),
        (
            "go",
            '{{ range $e := registrations "prod" "http" "web" "*" }}'
            "{{ $e.Address }}:{{ $e.Port }} {{ sub 256 $e.Priority }} {{ $e.Annotations.host }};{{ end }}",
        ),
        (
            "jinja",
            f"{{% for e in registrations{ASKED} %}}"
            "{{ e.Address }}:{{ e.Port }} {{ 256 - e.Priority }} {{ e.Annotations.host }};{% endfor %}",
        ),
    ],
)
def test_a_template_lists_the_entries(engine: str, template: str) -> None:
    text = an_environment().render(engine, template)

    assert text == "10.0.0.1:8080 246 web1;10.0.0.2:8080 236 web2;"


def test_an_expression_looks_into_the_entries() -> None:
    env = an_environment()

    assert evaluate(f"len(registrations{ASKED})", env) == 2
    assert evaluate(f"map(registrations{ASKED}, .Address)", env) == ["10.0.0.1", "10.0.0.2"]
    assert evaluate(f"registrations{ASKED}[1].Port + 1", env) == 8081
    assert evaluate(f"registrations{ASKED}[0].Annotations.missing", env) == ""
    assert evaluate(f"map(registrations{ASKED}, .TTL)", env) == ["10m0s", None]


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        ("expr", f"{{{{ registrations{ASKED}.PrometheusFileSD() }}}}"),
        ("jet", f"[[ registrations{ASKED}.PrometheusFileSD() | raw ]]"),
        ("go", '{{ $r := registrations "prod" "http" "web" "*" }}{{ $r.PrometheusFileSD }}'),
        ("go", '{{ (registrations "prod" "http" "web" "*").PrometheusFileSD }}'),
        ("jinja", f"{{{{ registrations{ASKED}.PrometheusFileSD() }}}}"),
    ],
)
def test_prometheus_s_file_can_be_made_in_each_engine(engine: str, template: str) -> None:
    env = an_environment()

    text = render_text(template, env) if engine == "expr" else env.render(engine, template)

    assert [group["targets"] for group in json.loads(text)] == [["10.0.0.1:8080", "10.0.0.2:8080"]]


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        ("expr", f"{{{{ registrations{ASKED}[0].Adress }}}}"),
        ("jet", f"[[ range _, e := registrations{ASKED} ]][[ e.Adress ]][[ end ]]"),
        ("go", '{{ range registrations "prod" "http" "web" "*" }}{{ .Adress }}{{ end }}'),
        ("jinja", f"{{% for e in registrations{ASKED} %}}{{{{ e.Adress }}}}{{% endfor %}}"),
        ("expr", f"{{{{ registrations{ASKED}.Nothing() }}}}"),
        ("jet", f"[[ registrations{ASKED}.Nothing() ]]"),
        ("jinja", f"{{{{ registrations{ASKED}.append(1) }}}}"),
    ],
)
def test_a_misspelt_field_is_an_error_and_no_empty_text(engine: str, template: str) -> None:
    env = an_environment()

    with pytest.raises(InputError):
        render_text(template, env) if engine == "expr" else env.render(engine, template)
