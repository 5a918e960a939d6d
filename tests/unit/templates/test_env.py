"""What expressions see, and the functions of manifests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import ExpressionError, TemplateError
from ccm_agent.templates import env as env_module
from ccm_agent.templates.env import Environment
from ccm_agent.templates.resolve import evaluate

DATA = {
    "n": 1,
    "whole": 2.0,
    "tiny": 1e-7,
    "half": 0.5,
    "list": [1, {"a": 2}],
    "m": {"x.y": 3, "z": {"deep": "d"}},
    "null": None,
    "no": False,
    "html": "<a>",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.n", 1),
        ("data.whole", 2),
        ("data.half", 0.5),
        ("data.tiny", 0),
        ("data.list", [1.0, {"a": 2.0}]),
        ("data.list.1.a", 2),
        ("data.list.#", 2),
        ("data.m.z", {"deep": "d"}),
        (r"data.m.x\.y", 3),
        ("data.m.*.deep", "d"),
        ("data.null", None),
        ("data.no", False),
        ("data.m.@keys", ["x.y", "z"]),
        ("data.nope.@keys", []),
        ("facts.role", "web"),
        ("environ.HOME", "/root"),
        ("@this|@keys", ["facts", "data", "environ"]),
        ("{data.n,facts.role}", {"n": 1.0, "role": "web"}),
        ("data.html", "<a>"),
    ],
)
def test_lookup_walks_gjson_paths(path: str, value: Any) -> None:
    env = Environment(facts={"role": "web"}, data=DATA, environ={"HOME": "/root"})

    got = env.lookup(path)

    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "path", ["data.nope", "data.n.x", "data.list.9", "data.list.-1", "Data.n", "", "data.", "data.null.x"]
)
def test_lookup_of_nothing_is_an_error_unless_there_is_a_default(path: str) -> None:
    env = Environment(data=DATA)

    with pytest.raises(ExpressionError, match="found nothing"):
        env.lookup(path)
    assert env.lookup(path, "d") == "d"
    assert Environment(data=DATA, is_lenient=True).lookup(path) == ""


def test_lookup_sees_data_that_change() -> None:
    data = {"a": 1}
    env = Environment(data=data)
    env.lookup("data.*")

    data["a"] = 2

    assert env.lookup("data.a") == 2


def test_files_are_read_relative_to_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_bytes(b"a\r\n\xff")
    env = Environment(working_dir=tmp_path)

    assert env.read_file("./sub/../sub/a.txt") == "a\r\n\udcff"
    assert env.read_file(str(tmp_path / "sub" / "a.txt")) == "a\r\n\udcff"


def test_an_unreadable_file_reports_why(tmp_path: Path) -> None:
    env = Environment(working_dir=tmp_path)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ExpressionError, match=r"nope\.txt: No such file"):
        env.read_file("nope.txt")
    with pytest.raises(ExpressionError, match="it is a directory"):
        env.read_file(".")
    with pytest.raises(ExpressionError, match="it is not a regular file"):
        env.read_file("pipe")
    with pytest.raises(ExpressionError, match="cannot read"):
        env.read_file("a\0b")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module, "READ_LIMIT", 10)
    (tmp_path / "large").write_text("x" * 11)

    with pytest.raises(ExpressionError, match="larger than 10 bytes"):
        Environment(working_dir=tmp_path).read_file("large")


def test_templates_are_text_or_files(tmp_path: Path) -> None:
    (tmp_path / "t.templ").write_text("<{{ Data.n }}>")
    (tmp_path / "one.templ").write_text(" {{ Data.list }}\n")
    (tmp_path / "a.txt").write_text("{{ 1 }}")
    env = Environment(data=DATA, working_dir=tmp_path)

    assert env.template("n={{ Data.n }}") == "n=1"
    assert env.template("t.templ") == "<1>"
    assert env.template("one.templ") == DATA["list"]
    assert env.template("a.txt") == "a.txt"


def test_templates_that_render_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "loop.templ").write_text("{{ template('loop.templ') }}")
    env = Environment(working_dir=tmp_path)

    with pytest.raises(ExpressionError, match="more than 20 deep"):
        env.template("loop.templ")
    assert env.template("{{ 1 }}") == 1


def test_jet_templates_are_text_or_files(tmp_path: Path) -> None:
    (tmp_path / "x.jet").write_text("j[[ Data.n ]]")
    env = Environment(data=DATA, working_dir=tmp_path)

    assert env.jet("[[ data.n ]]") == "1"
    assert env.jet("<% data.n %>", "<%", "%>") == "1"
    assert env.jet("x.jet") == env.template("x.jet") == "j1"


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(TemplateError, match="mustache"):
        Environment().render("mustache", "x")


def test_a_function_without_a_broker_reports_it() -> None:
    env = Environment()

    with pytest.raises(ExpressionError, match="no broker is configured"):
        env.kv_get("bucket", "key")
    with pytest.raises(ExpressionError, match="no broker is configured"):
        env.registrations("c", "p", "s", "a")


def test_the_brokers_values_are_returned() -> None:
    env = Environment(
        kv_get=lambda bucket, key: f"{bucket}/{key}",
        registrations=lambda *asked: [list(asked)],
    )

    assert evaluate("kvGet('b', 'k')", env) == "b/k"
    assert evaluate("registrations('c', 'p', 's', 'a')[0][2]", env) == "s"


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("lookup()", "lookup() takes 1 or 2 arguments, not 0"),
        ("lookup(1)", "lookup() takes text"),
        ("file()", "readFile() takes text"),
        ("template(nil)", "template() takes text"),
        ("jet('a', 'b')", "jet() takes 1 or 3 arguments, not 2"),
        ("kvGet('b')", "kvGet() takes 2 arguments, not 1"),
        ("kvGet('b', 1)", "kvGet() takes text as argument 2"),
        ("registrations('a')", "registrations() takes 4 arguments, not 1"),
    ],
)
def test_functions_declare_their_arguments(expression: str, wrong: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression, Environment())

    assert wrong in str(caught.value)


def test_a_restricted_environment_has_lookup_alone() -> None:
    env = Environment(data=DATA, is_restricted=True)

    assert evaluate("lookup('data.n')", env) == 1
    with pytest.raises(ExpressionError, match="unknown name file"):
        evaluate("file('/etc/passwd')", env)


def test_extra_functions_are_called_and_their_errors_placed() -> None:
    def failing(*_arguments: Any) -> Any:
        raise ExpressionError("out of order")

    env = Environment(extra_functions={"double": lambda x: x * 2, "failing": failing})

    assert evaluate("double(2) + 1", env) == 5
    with pytest.raises(ExpressionError) as caught:
        evaluate("1 + failing()", env)
    assert (caught.value.offset, "failing() failed: out of order" in str(caught.value)) == (4, True)
    with pytest.raises(ExpressionError, match=r"double\(\) does not take 2 arguments"):
        evaluate("double(1, 2)", env)
