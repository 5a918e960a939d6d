"""Keys of ini, JSON, TOML and YAML texts: what changes, what stays, and which texts are refused."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.resources.config.model import ConfigProperties
from ccm_agent.resources.config.providers.posix import SLOW_LIMIT_BYTES, change_content

INI = b"; top\nglobal=1\n\n[PHP]\n; memory\nmemory_limit = 128M\nopcache.enable=0\n\n[mysqld]\n!includedir /etc\nskip-name\n"
JSON = b'{\n    "a": 1.10,\n    "b": {"c": [1, 2]},\n    "d": {}\n}\n'
TOML = b"# c\ntitle = 'x' # t\n\n[server]\nport = 80 # p\nhosts = [\n  'a', # aa\n]\n\n[[many]]\na = 1\n"
YAML = b"""\
# top
---
server:
    port: 80   # the port
    hosts:
      - a
      - b  # bee

# the rest
other: 'x'
base: &b {a: 1}
use: *b
"""
CONTENTS = [("ini", INI), ("json", JSON), ("toml", TOML), ("yaml", YAML)]


def change(name: str, content: bytes, *, ensure: str = "present", **values: Any) -> bytes:
    """The content of a file of this format with these values; `__` is written for a dot."""
    dotted = {key.replace("__", "."): value for key, value in values.items()}
    return change_content(ConfigProperties(name=f"/etc/a.{name}", ensure=ensure, values=dotted), content)


@pytest.mark.parametrize(
    ("name", "content", "values", "old", "new"),
    [
        pytest.param("ini", INI, {"PHP__memory_limit": "256M"}, b"128M", b"256M", id="ini: a value"),
        pytest.param("ini", INI, {"PHP__opcache__enable": 1}, b"enable=0", b"enable=1", id="ini: a key with a dot"),
        pytest.param("ini", INI, {"PHP__on": True}, b"enable=0\n", b"enable=0\non=true\n", id="ini: a new key"),
        pytest.param("ini", INI, {"global": 2}, b"global=1", b"global=2", id="ini: a key before all sections"),
        pytest.param("ini", INI, {"x__y": "z"}, b"skip-name\n", b"skip-name\n\n[x]\ny=z\n", id="ini: a new section"),
        pytest.param("ini", INI, {"mysqld__skip-name": None}, b"", b"", id="ini: a key without value"),
        pytest.param("ini", b"[a]\nk=\xe9\nx=1", {"a__x": 2}, b"x=1", b"x=2", id="ini: bytes and end stay"),
        pytest.param("ini", b"[a]\r\nk : 1\r\n", {"a__b": 2}, b"k : 1\r\n", b"k : 1\r\nb : 2\r\n", id="ini: its own marks"),
        pytest.param("ini", b"[S]\nE=\nE=/x\nU=a\n", {"S__U": "b"}, b"U=a", b"U=b", id="ini: others are there twice"),
        pytest.param("json", JSON, {"b__c__1": 3}, b"[1, 2]", b"[1, 3]", id="json: an element"),
        pytest.param("json", JSON, {"b__e": "\xe9"}, b"[1, 2]", '[1, 2], "e": "\xe9"'.encode(), id="json: in one line"),
        pytest.param("json", JSON, {"z": None}, b'"d": {}', b'"d": {},\n    "z": null', id="json: a new key"),
        pytest.param("json", JSON, {"d__x": 1}, b"{}\n", b'{\n        "x": 1\n    }\n', id="json: in an empty object"),
        pytest.param("json", JSON, {"a": 1}, b"1.10", b"1", id="json: another type"),
        pytest.param("json", JSON, {"a": 1.1}, b"", b"", id="json: the same number"),
        pytest.param("json", b'\xef\xbb\xbf{"a": 1}', {"a": 2}, b"1", b"2", id="json: a byte order mark"),
        pytest.param("toml", TOML, {"server__port": 81}, b"80", b"81", id="toml: a value"),
        pytest.param("toml", TOML, {"many__0__a": 2}, b"a = 1", b"a = 2", id="toml: an element"),
        pytest.param("toml", TOML, {"new__x": "y"}, b"a = 1\n", b'a = 1\n\n[new]\nx = "y"\n', id="toml: a new table"),
        pytest.param("toml", b"a = 1\r\n", {"a": 2}, b"1", b"2", id="toml: CRLF"),
        pytest.param("yaml", YAML, {"server__port": 81}, b"80", b"81", id="yaml: a value"),
        pytest.param("yaml", YAML, {"server__hosts__1": "c"}, b"- b", b"- c", id="yaml: an element"),
        pytest.param(
            "yaml", YAML, {"server__tls": True}, b"# bee\n", b"# bee\n    tls: true\n", id="yaml: above the next comment"
        ),
        pytest.param("yaml", YAML, {"new": [1]}, b"*b\n", b"*b\nnew:\n  - 1\n", id="yaml: a list, indented alike"),
        pytest.param("yaml", b"# only\n", {"a__b": 1}, b"only\n", b"only\na:\n  b: 1\n", id="yaml: comments only"),
        pytest.param("yaml", b"t: true\nn: 010\n", {"t": False}, b"true", b"false", id="yaml: a boolean"),
        pytest.param("yaml", b"a: 1\r\n", {"a": 2}, b"1", b"2", id="yaml: CRLF"),
        pytest.param("yaml", b"a: !x [1]\nb: 1\n", {"b": 2}, b"b: 1", b"b: 2", id="yaml: a tag stays one"),
    ],
)  # fmt: skip
def test_only_the_value_changes(
    name: str, content: bytes, values: dict[str, Any], old: bytes, new: bytes
) -> None:
    after = change(name, content, **values)

    assert after == content.replace(old, new, 1)
    assert change(name, after, **values) == after


@pytest.mark.parametrize(
    ("name", "content", "key", "after"),
    [
        ("ini", INI, "PHP.memory_limit", INI.replace(b"memory_limit = 128M\n", b"")),
        ("json", JSON, "b", JSON.replace(b'"b": {"c": [1, 2]},\n    ', b"")),
        ("json", JSON, "d", JSON.replace(b',\n    "d": {}', b"")),
        ("json", b'{"a": 1}', "a", b"{}"),
        ("toml", TOML, "server.port", TOML.replace(b"port = 80 # p\n", b"")),
        ("yaml", YAML, "server.port", YAML.replace(b"    port: 80   # the port\n", b"")),
        *((name, content, "no.such.key", content) for name, content in CONTENTS),
    ],
)  # fmt: skip
def test_a_key_is_removed(name: str, content: bytes, key: str, after: bytes) -> None:
    wanted = ConfigProperties(name=f"/etc/a.{name}", ensure="absent", key=key)

    assert change_content(wanted, content) == after
    assert change_content(wanted, after) == after


@pytest.mark.parametrize("name", ["ini", "json", "toml", "yaml"])
def test_an_empty_file_gets_the_key(name: str) -> None:
    wanted = {"a__b": 1}
    after = change(name, b"", **wanted)

    assert change(name, after, **wanted) == after != b""


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("name", "content", "values", "message"),
    [
        ("ini", b"[a]\nk=1\nk=2\n", {"a__k": 1}, "the key `a.k` occurs more than once (lines 2 and 3)"),
        ("ini", b"[a]\n[a]\n", {"a__k": 1}, "the section `a` occurs more than once"),
        ("ini", b"[a]\nk=1\n  more\n", {"a__k": 2}, "the value of `a.k` (line 2) has several lines"),
        ("ini", INI, {"PHP__x": "1\n[b]"}, "the value of `PHP.x` has surrounding spaces or several lines"),
        ("ini", INI, {"PHP__x": [1]}, "the value of `PHP.x` is a list or a mapping"),
        ("ini", b"a=1\nb=2\r\n", {"a": 9}, "some of its lines end with CRLF and some with LF"),
        ("toml", b"a=1\nb=2\r\n", {"a": 9}, "some of its lines end with CRLF and some with LF"),
        ("yaml", b"a: 1\nb: 2\r\n", {"a": 9}, "some of its lines end with CRLF and some with LF"),
        ("ini", b"a\0", {"a": 1}, "it contains NUL bytes, so it is not text"),
        ("json", b'{"a": 1, "a": 2}', {"b": 1}, "line 1: the key `a` occurs twice"),
        ("json", b"[" * 100_000, {"b": 1}, "it is nested more than 64 levels deep"),
        ("json", b'{"a": 1,}', {"b": 1}, "it is not JSON: line 1: expected a string in double quotes"),
        ("json", b'{"a": 1}\nx', {"b": 1}, "it is not JSON: line 2: expected the end of the text"),
        ("json", b'{"a": "x\n"}', {"b": 1}, "it is not JSON: line 1: expected a string in double quotes"),
        ("json", b'{"a": ' + b"9" * 10_000 + b"}", {"b": 1}, "it is not JSON: line 1: expected a value"),
        ("json", JSON, {"a__x": 1}, "the key `a.x`: the value before `x` is not an object"),
        ("json", JSON, {"b__c__2": 1}, "the key `b.c.2`: `2` is not an index of a list of length 2"),
        ("json", JSON, {"a": float("nan")}, "JSON does not support the value"),
        ("json", JSON, {"a": "\udc80"}, "a value contains"),
        ("json", b"{\xff}", {"a": 1}, "it is not UTF-8"),
        ("toml", b"a = 1\na = 2\n", {"b": 1}, "it is not TOML, or cannot be changed"),
        ("toml", b"a = " + b"[" * 100_000, {"b": 1}, "it is not TOML, or cannot be changed"),
        ("toml", TOML, {"title": None}, "the value of `title` is null, which TOML does not support"),
        ("toml", TOML, {"title__x": 1}, "the key `title.x`: the value before `x` is not a table"),
        ("toml", b"#" * (SLOW_LIMIT_BYTES + 1), {"a": 1}, "it has 262145 bytes; the limit for toml files is 262144"),
        ("yaml", b"a: secret\na: 2\n", {"b": 1}, "it is not YAML: line 2: a key occurs twice"),
        ("yaml", b"[" * 100_000, {"b": 1}, "it is nested too deeply"),
        ("yaml", b"a: [b\n", {"b": 1}, "it is not YAML: line 2"),
        ("yaml", b"a: *x\n", {"b": 1}, "it is not YAML: line 1"),
        ("yaml", BOMB.encode(), {"z": 1}, "the value has more than 100000 parts, aliases included"),
        ("yaml", YAML, {"use__a": 2}, "the key `use.a` is inside an anchor"),
        ("yaml", b"a: 1\n---\nb: 2\n", {"b": 1}, "it has several documents or directives"),
        ("yaml", b"%YAML 1.1\n---\nb: 2\n", {"b": 1}, "it has several documents or directives"),
        ("yaml", b"--- {a: 1}\n", {"a": 2}, "its document begins on the line of `---`"),
        ("yaml", b"- a\n", {"b": 1}, "the key `b`: `b` is not an index of a list of length 1"),
        ("yaml", b"just text\n", {"b": 1}, "the key `b`: the value before `b` is not a mapping"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_changed_is_an_error(
    name: str, content: bytes, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileError) as caught:
        change(name, content, **values)

    assert caught.value.message[: len(message)] == message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("library", ["ruamel.yaml", "tomlkit"])
def test_a_missing_library_is_an_error_with_the_way_out(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    name = {"ruamel.yaml": "yaml", "tomlkit": "toml"}[library]

    with pytest.raises(FileError) as caught:
        change(name, b"", a=1)

    assert caught.value.message == (
        f"{name} requires the Python package {library}; install it with `pip install 'ccm-fleet[config]'`"
    )
