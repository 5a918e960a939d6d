"""The process that renders templates: what it may use, what it gets to know, and what becomes of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import TemplateError, TemplateLimitError
from ccm_agent.system import process_stats, render_process
from ccm_agent.system.render_process import RenderLimits, RenderProcess
from ccm_agent.templates.env import Environment
from ccm_agent.templates.rendering import Renderer

pytestmark = pytest.mark.timeout(120)  # a second of CPU time can be many seconds on a busy machine

LIMITS = RenderLimits(cpu_s=1, grace_s=1, memory_bytes=96 << 20)


@pytest.fixture(scope="module")
def worker() -> Iterator[RenderProcess]:
    one = RenderProcess(LIMITS)
    yield one
    one.close()


def environment(worker: RenderProcess, **more: Any) -> Environment:
    return Environment(renderer=Renderer(worker), **more)


def pid_of(worker: RenderProcess) -> int:
    assert worker._process is not None
    return worker._process.pid


TIME = "more than 1 s of CPU time"
MEMORY = "more memory than it may have"


@pytest.mark.parametrize(
    ("engine", "text", "message"),
    [
        pytest.param(
            "jinja",
            "\n{% set ns = namespace(a=3) %}{% for i in range(60) %}{% set ns.a = ns.a * ns.a %}{% endfor %}",
            "motd:2: an integer has at most 4096 bits",
            id="squares of squares",
        ),
        pytest.param(
            "jinja",
            "\n{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
            f"motd:2: template takes {TIME}",
            id="loops within each other",
        ),
        pytest.param("jinja", "{{ ('a ' * 9000000) | wordwrap(1) }}", "template ", id="wordwrap"),
        pytest.param("jinja", "{{ 'a' | center(1000000000) }}", f"motd:1: template needs {MEMORY}", id="center"),
        pytest.param("jinja", "{{ '%999999999d' % 1 }}", f"motd:1: template needs {MEMORY}", id="wide format"),
        pytest.param("jinja", "{{ '{:{}}'.format(1, 999999999) }}", f"motd:1: template needs {MEMORY}", id="wide field"),
        pytest.param("jinja", "{{ [1] * 1000000000 }}", f"motd:1: template needs {MEMORY}", id="long list"),
        pytest.param(
            "jinja",
            "{% set n = namespace(x='aaaa') %}{% for i in range(60) %}{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
            f"motd:1: template needs {MEMORY}",
            id="a text that doubles",
        ),
        pytest.param(
            "jinja",
            "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}\n{{ n.x | string }}",
            "motd",
            id="a list of itself printed",
        ),
        pytest.param(
            "jinja",
            "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}",
            f"motd:1: template takes {TIME}",
            id="macros",
        ),
        pytest.param(
            "jinja",
            "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
            "{% endfor %}{{ n.x == n.y }}",
            f"motd: template takes {TIME}",
            id="one call of C that takes years",
        ),
        pytest.param(
            "jinja",
            "{% for i in range(100000) %}{{ template('{{ all(1..9999, # > 0) }}') }}{% endfor %}",
            f"template takes {TIME}",
            id="expressions in a template",
        ),
        pytest.param(
            "go",
            '\n{{ $s := repeat 100000 "abcdefghij" }}{{ range until 1000 }}{{ $x := shuffle $s }}{{ end }}',
            f"motd:2: template takes {TIME}",
            id="shuffle",
        ),
        pytest.param("go", '{{ repeat 1000000000 "a" }}', "motd:1: ", id="repeat"),
        pytest.param(
            "jet",
            "[[ range i := ints(0, 2000000) ]][[ range j := ints(0, 2000000) ]][[ end ]][[ end ]]",
            "motd:1: ",
            id="ranges",
        ),
        pytest.param(
            "jet",
            "[[ try ]][[ range i := ints(0, 2000000) ]][[ range j := ints(0, 2000000) ]][[ end ]][[ end ]][[ catch ]][[ end ]]",
            "motd:1: ",
            id="a limit is not caught",
        ),
    ],
)  # fmt: skip
def test_a_hostile_template_fails_and_the_next_one_is_rendered(
    engine: str, text: str, message: str, worker: RenderProcess
) -> None:
    before = process_stats.resident_bytes()

    with pytest.raises(TemplateError) as caught:
        environment(worker).render(engine, text, name="motd")

    assert str(caught.value).startswith("motd")
    assert message in str(caught.value)
    assert environment(worker).render("jinja", "{{ 1 + 1 }}") == "2"
    assert process_stats.resident_bytes() - before < 64 << 20


def test_limits_have_a_code_of_their_own(worker: RenderProcess) -> None:
    with pytest.raises(TemplateLimitError) as caught:
        environment(worker).render("jinja", "{{ [1] * 1000000000 }}")

    assert caught.value.code == "template.too_costly"


def test_a_process_serves_many_templates_and_ends_with_a_limit(worker: RenderProcess) -> None:
    env = environment(worker)
    env.render("jinja", "a")
    first = pid_of(worker)
    with pytest.raises(TemplateError):
        env.render("jinja", "{{ nope }}")
    env.render("go", "a")

    assert pid_of(worker) == first

    with pytest.raises(TemplateLimitError):
        env.render("jinja", "{{ [1] * 1000000000 }}")
    env.render("jinja", "a")

    assert pid_of(worker) != first


def test_a_process_that_has_gone_is_started_again(worker: RenderProcess) -> None:
    env = environment(worker)
    env.render("jinja", "a")
    assert worker._process is not None
    worker._process.kill()
    worker._process.wait()

    assert env.render("jinja", "b") == "b"


def test_a_process_that_dies_while_rendering_fails_the_template(worker: RenderProcess) -> None:
    def kill(bucket: str, key: str) -> str:
        os.kill(pid_of(worker), signal.SIGKILL)
        return ""

    with pytest.raises(TemplateLimitError, match="motd: template needs more memory than this host has left"):
        environment(worker, kv_get=kill).render("jinja", "{{ kvGet('a', 'b') }}", name="motd")


def test_a_process_that_hangs_is_ended() -> None:
    worker = RenderProcess(LIMITS, wall_s=5)

    def hold(bucket: str, key: str) -> str:
        os.kill(pid_of(worker), signal.SIGSTOP)
        return ""

    with pytest.raises(TemplateLimitError, match="motd: template takes more than 5 s"):
        environment(worker, kv_get=hold).render("jinja", "{{ kvGet('a', 'b') }}", name="motd")
    assert worker._process is None


def test_the_signals_that_stop_a_service_do_not_fail_a_template(worker: RenderProcess) -> None:
    def signal_all(bucket: str, key: str) -> str:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid_of(worker), number)
        return "still here"

    assert environment(worker, kv_get=signal_all).render("jinja", "{{ kvGet('a', 'b') }}") == "still here"


def test_render_process_receives_only_its_jobs(
    worker: RenderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCM_SECRET", "hunter2")
    worker.close()
    secrets: list[bytes] = []

    def look(bucket: str, key: str) -> str:
        folder = Path(f"/proc/{pid_of(worker)}")
        secrets.extend((folder / name).read_bytes() for name in ("environ", "cmdline"))
        secrets.append("\n".join(sorted(os.readlink(one) for one in (folder / "fd").iterdir())).encode())
        return ""

    environment(worker, data={"password": "swordfish"}, kv_get=look).render("jinja", "{{ kvGet('a', 'b') }}")

    environ, cmdline, descriptors = secrets
    assert not environ or environ.startswith(b"TZ=")
    assert b"swordfish" not in cmdline
    assert {line.partition(":")[0] for line in descriptors.decode().splitlines()} <= {"/dev/null", "socket"}


def test_a_process_ends_with_the_one_that_started_it() -> None:
    worker = RenderProcess(LIMITS)
    environment(worker).render("jinja", "a")
    pid, channel = pid_of(worker), worker._socket
    assert channel is not None

    channel.close()

    assert worker._process is not None
    assert worker._process.wait(20) == 0
    assert not Path(f"/proc/{pid}").exists()
    worker._socket = None
    worker.close()


def test_closing_does_not_wait_for_a_template() -> None:
    worker = RenderProcess(RenderLimits(cpu_s=60))
    env = environment(worker)
    env.render("jinja", "a")
    failures: list[TemplateError] = []

    def render() -> None:
        try:
            env.render(
                "jinja", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
            )
        except TemplateError as err:
            failures.append(err)

    thread = threading.Thread(target=render)
    thread.start()
    time.sleep(0.2)
    begun = time.monotonic()
    worker.close()
    thread.join()

    assert time.monotonic() - begun < 20
    assert len(failures) == 1


def test_templates_of_several_threads_wait_for_each_other(worker: RenderProcess) -> None:
    env, made = environment(worker), []

    def render(number: int) -> None:
        made.append(env.render("jinja", f"{{{{ {number} * 2 }}}}"))

    threads = [threading.Thread(target=render, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert sorted(made, key=int) == [str(2 * number) for number in range(8)]


def test_a_process_that_cannot_be_started_is_an_error_of_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")

    with pytest.raises(
        TemplateError, match="the process that renders templates cannot be started: No such file"
    ):
        environment(RenderProcess(LIMITS)).render("jinja", "a")


def test_a_message_that_is_too_long_ends_it(monkeypatch: pytest.MonkeyPatch, worker: RenderProcess) -> None:
    monkeypatch.setattr(render_process, "MESSAGE_LIMIT_BYTES", 1000)

    with pytest.raises(TemplateError):
        environment(worker).render("jinja", "{{ 'a' * 2000 }}")
    assert environment(worker).render("jinja", "a") == "a"
