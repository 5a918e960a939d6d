"""Templates that are rendered elsewhere: what goes there, what comes back, what is asked meanwhile. Both sides in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ccm_agent.facts.gather import LazyFacts
from ccm_agent.manifest.expressions import bus_error_behind
from ccm_agent.model.errors import (
    BusUnavailableError,
    CcmError,
    ExpressionError,
    FileError,
    InputError,
    PolicyError,
    SecretNotSealedError,
    TemplateError,
    TemplateLimitError,
)
from ccm_agent.model.ports import Tree, TreeEntry
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.templates import rendering
from ccm_agent.templates.env import Environment
from ccm_agent.templates.gotime import GoDuration
from ccm_agent.templates.render_service import serve
from ccm_agent.templates.rendering import DirectoryOptions, HostFunctionCall, Renderer
from ccm_agent.templates.services import Services
from ccm_agent.templates.tree import render_apart
from ccm_agent.templates.values import StringMap


class Unlimited:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


class Here:
    """
    A worker without a process: it serves each request at once.

    Attributes:
        asked: Functions that templates asked for.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._requests: list[bytes] = []
        self._answer: bytes | None = b""
        self._hear: Callable[[bytes], bytes | None] = lambda _message: None

    def call(self, request: bytes, hear: Callable[[bytes], bytes | None]) -> None:
        self._requests, self._hear = [request], hear
        serve(self, Unlimited(), lambda ask: LazyFacts([ask], families={}))
        assert self._answer == b"", "it says when it is done"

    def close(self) -> None:
        raise AssertionError("nothing is to be closed")

    # the channel

    def request(self) -> bytes:
        return self._requests.pop() if self._requests else b""

    def answer(self) -> bytes:
        assert self._answer
        return self._answer

    def send(self, message: bytes) -> None:
        one = rendering.said.decode(message)
        if isinstance(one, HostFunctionCall):
            self.asked.append(one.function)
        self._answer = self._hear(message)


def environment(worker: Here, **more: Any) -> Environment:
    return Environment(renderer=Renderer(worker), **more)


def fails(*_arguments: str) -> Any:
    raise BusUnavailableError("no broker answers")


@pytest.mark.parametrize(
    ("engine", "text", "value"),
    [
        ("jinja", "{{ data.x }}", 5),
        ("jinja", "{{ data.x }}", 2**100),
        ("jinja", "{{ data.x }}", "\udc80é\U0001f600\x00"),
        ("jinja", "{{ data.x }}", [None, True, 1.5, {"a": 1}]),
        ("jinja", "{{ data.x[1] }}", {1: "one"}),
        ("jinja", "{{ data.x }}", GoDuration(90_000_000_000)),
        ("go", "{{ .data.x }}", {"b": [1, None], "a": "\udcff"}),
        ("go", "{{ .data.x.no }}", StringMap(a="b")),
        ("jet", "[[ data.x ]]", [1, "a", {"b": 2.0}]),
    ],
)
def test_values_are_rendered_as_here(engine: str, text: str, value: Any) -> None:
    apart = environment(Here(), data={"x": value}, environ={"HOME": "/root"}).render(engine, text)

    assert apart == Environment(data={"x": value}).render(engine, text)


def test_a_value_that_cannot_go_there_is_an_error_of_the_template() -> None:
    with pytest.raises(TemplateError, match="motd: a value in the data cannot be passed to templates"):
        environment(Here(), data={"x": lambda: 1}).render("jinja", "{{ data.x }}", name="motd")


def test_facts_are_gathered_when_a_template_needs_one() -> None:
    gathered = []

    def family() -> Any:
        gathered.append("os")
        return {"name": "linux"}

    worker = Here()
    env = environment(worker, facts=LazyFacts(families={"os": family}), data={"x": 1})

    assert env.render("jinja", "{{ data.x }}") == "1"
    assert (gathered, worker.asked) == ([], [])
    assert (
        env.render("jinja", "{{ facts.os.name }} {{ facts.os.name }} {{ lookup('facts.os.name') }}")
        == "linux linux linux"
    )
    assert (gathered, worker.asked) == (["os"], ["facts"])


def test_reads_of_a_template_are_executed_by_the_requester(tmp_path: Any) -> None:
    (tmp_path / "motd").write_bytes(b"caf\xe9")
    entries = [
        RegistrationEntry(
            cluster="c", service="web", protocol="http", address="10.0.0.1", port=80, priority=1
        )
    ]
    worker = Here()
    env = environment(
        worker,
        working_dir=tmp_path,
        registrations=lambda *fits: Services(entries),
        kv_get=lambda bucket, key: f"{bucket}/{key}",
    )
    text = "{{ readFile('motd') }} {{ kvGet('B', 'k') }} {{ registrations('*', '*', '*', '*')[0].Address }}"

    assert env.render("jinja", text) == "caf\udce9 B/k 10.0.0.1"
    assert worker.asked == ["readFile", "kvGet", "registrations"]


def test_templates_render_other_templates_there() -> None:
    worker = Here()
    env = environment(worker, data={"x": 7})

    assert env.render("jinja", "{{ template('{{ Data.x + 1 }}') }} {{ jet('[[ data.x ]]') }}") == "8 7"
    assert worker.asked == []


def test_changes_of_data_in_a_template_end_with_it() -> None:
    data: dict[str, Any] = {"x": 1}
    env = environment(Here(), data=data)

    assert env.render("jet", "[[ data.x = 2 ]][[ data.x ]]") == "2"
    assert data == {"x": 1}


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a\n{{ data.no }}", TemplateError, "motd:2: 'dict object' has no attribute 'no'"),
        (
            "{{ readFile('/no/such') }}",
            TemplateError,
            "motd:1: cannot read /no/such: No such file or directory",
        ),
        ("{{ kvGet('a') }}", TemplateError, "motd:1: kvGet() takes 2 arguments, not 1"),
    ],
)
def test_errors_come_back_with_their_place(text: str, kind: type[CcmError], message: str) -> None:
    with pytest.raises(kind) as caught:
        environment(Here()).render("jinja", text, name="motd")

    assert type(caught.value) is kind
    assert str(caught.value) == message


class Sealed:
    """The secret `db`; nothing else is sealed here."""

    def open(self, name: str) -> str:
        if name != "db":
            raise SecretNotSealedError(f"secret {name}: it is not sealed to this node")
        return "hunter22"

    def require_opened(self, value: object) -> None:
        if "secret://mail" in str(value):
            raise SecretNotSealedError("secret mail: it is not sealed to this node")


def with_secrets(worker: Here, **more: Any) -> Environment:
    env = environment(worker, **more)
    env.secrets = Sealed()
    return env


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jinja", "p={{ secret('db') }}"),
        ("go", 'p={{ secret "db" }}'),
        ("jet", 'p=[[ secret("db") ]]'),
    ],
)
def test_a_secret_crosses_to_the_process_that_renders_on_request(engine: str, text: str) -> None:
    worker = Here()

    assert with_secrets(worker).render(engine, text) == "p=hunter22"
    assert worker.asked == ["secret"]


@pytest.mark.parametrize("text", ["{{ secret('mail') }}", "{{ data.pw }}"])
def test_a_secret_that_is_not_sealed_is_behind_the_error_of_the_template(text: str) -> None:
    env = with_secrets(Here(), data={"pw": "secret://mail"})

    with pytest.raises(InputError, match="not sealed to this node") as caught:
        env.render("jinja", text)

    assert isinstance(bus_error_behind(caught.value), SecretNotSealedError)


def test_a_file_of_a_directory_with_a_secret_that_is_not_sealed_is_refused() -> None:
    env = with_secrets(Here(), data={"pw": "secret://mail"})

    with pytest.raises(InputError, match="not sealed to this node"):
        render_apart(tree(motd="{{ data.pw }}"), DirectoryOptions(source="t", engine="jinja"), env)


def test_an_error_keeps_the_unreachable_broker_as_its_cause() -> None:
    with pytest.raises(TemplateError) as caught:
        environment(Here(), kv_get=fails).render("jinja", "{{ kvGet('B', 'k') }}", name="motd")

    assert isinstance(caught.value.__cause__, BusUnavailableError)


def test_a_broker_that_is_away_is_not_behind_another_error() -> None:
    text = '[[ try ]][[ kvGet("B", "k") ]][[ catch ]][[ end ]][[ data.no.no ]]'

    with pytest.raises(TemplateError) as caught:
        environment(Here(), kv_get=fails).render("jet", text, name="motd")

    assert caught.value.__cause__ is None


def test_the_nodes_policy_judges_reads_of_a_template() -> None:
    def check_read(path: str) -> None:
        raise PolicyError(f"the policy does not let {path} be read")

    env = environment(Here())
    env.confine(check_read)

    with pytest.raises(TemplateError) as caught:
        env.render("jinja", "{{ readFile('/etc/shadow') }}")

    assert isinstance(caught.value.__cause__, PolicyError)


def test_a_template_can_ask_for_nothing_else() -> None:
    env = environment(Here())
    conversation = rendering._Conversation(env, "motd")

    with pytest.raises(KeyError):
        conversation.hear(msgspec.msgpack.encode(HostFunctionCall("confine", [])))


def tree(**files: str) -> Tree:
    entries = [
        TreeEntry(path=path, kind="file", content=text.encode(errors="surrogateescape"))
        for path, text in files.items()
    ]
    return Tree(kind="directory", entries=entries)


def test_a_directory_is_rendered_there_as_here() -> None:
    source = tree(a='[[ data.x = 5 ]][[ write("c", "\udce9") ]]', b="[[ data.x ]]")
    wish = DirectoryOptions(source="src", engine="jet")

    apart = render_apart(source, wish, environment(Here(), data={"x": 1}))

    assert apart == render_apart(source, wish, Environment(data={"x": 1}))
    assert (apart.files["b"], apart.files["c"]) == (b"5", b"\xe9")


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (tree(a="x", b="[[ fails"), TemplateError, "b:1"),
        (
            Tree(kind="directory", entries=[TreeEntry(path="l", kind="symlink")]),
            FileError,
            "src: l is a symlink",
        ),
    ],
)
def test_errors_of_a_directory_come_back(source: Tree, kind: type[CcmError], message: str) -> None:
    with pytest.raises(kind, match=message):
        render_apart(source, DirectoryOptions(source="src", engine="jet"), environment(Here()))


def test_files_of_a_directory_are_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    env, wish = environment(Here()), DirectoryOptions(source="src", engine="jet")
    assert render_apart(tree(a="12345", b="12345"), wish, env).files.keys() == {"a", "b"}

    monkeypatch.setattr(rendering, "BYTES_MAX", 9)

    with pytest.raises(TemplateLimitError, match="the files are more than 9 bytes"):
        render_apart(tree(a="12345", b="12345"), wish, env)


def test_an_unreadable_file_is_an_error() -> None:
    class Babbling(Here):
        def call(self, request: bytes, hear: Callable[[bytes], bytes | None]) -> None:
            hear(b"\xc1")

    with pytest.raises(TemplateError, match="output of the rendering process cannot be read"):
        environment(Babbling()).render("jinja", "x")


def test_an_expression_is_evaluated_here() -> None:
    worker = Here()

    assert environment(worker, data={"x": 1}).template("{{ Data.x }}") == 1
    with pytest.raises(ExpressionError):
        environment(worker).template("{{ nope }}")
    assert worker.asked == []
