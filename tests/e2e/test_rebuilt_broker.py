"""A broker whose store is lost, made anew from nothing: agents that lived through it obey what is written next."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.support.fleet import Fleet, a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PINNED, FOLLOWED = "kv://CCM_DATA/common", "kv://CCM_DATA/site"


def make_anew(site: Fleet) -> None:
    """Another broker at the old one's address, that knows nothing."""
    settings = site.broker.settings
    site.broker.stop()
    shutil.rmtree(settings.directory / f"{settings.name}-store")
    site.broker.start()
    assert site.ctl("init").code == 0


def write(site: Fleet, name: str, word: str) -> None:
    """Facts, data and two assignments, each more than once: their revisions are the same whatever the word."""
    pinned = site.write("pinned.json", manifest(a_file("pinned", "{{ lookup('data.pinned') }}")))
    followed = site.write(
        "followed.json",
        manifest(a_file("followed", "{{ lookup('data.followed') }} {{ lookup('facts.word') }}")),
    )
    for text in (f"{word} first", word):
        steps = [
            ("facts", "set", name, f"word={text}", "role=web", "--new"),
            ("data", "put", "common", site.write("common.yaml", f"data: {{pinned: {text}}}\n")),
            ("data", "put", "site", site.write("site.yaml", f"data: {{followed: {text}}}\n")),
            ("assign", "pinned", pinned, "-t", f"node={name}", "-d", PINNED, "--yes"),
            ("assign", "followed", followed, "-t", f"node={name}", "-d", FOLLOWED, "--follow-data", "--interval", "1s", "--yes"),
        ]  # fmt: skip
        for step in steps:
            done = site.ctl(*step)
            assert done.code == 0, f"{step}: {done.err}"


@pytest.mark.parametrize(
    "is_asleep",
    [
        pytest.param(False, id="that is seen empty first"),
        pytest.param(True, id="that is written to before anybody sees it"),
    ],
)
def test_an_agent_obeys_the_broker_that_takes_the_place_of_a_lost_one(
    site: Fleet, name: str, is_asleep: bool
) -> None:
    make_anew(site)  # so that revisions of before are those of later
    site.add(name, change_pause="0s")
    agent = site.agents[name]

    def has(word: str) -> bool:
        wanted = {"pinned": word, "followed": f"{word} {word}"}
        return {path.name: path.read_text() for path in agent.files.iterdir()} == wanted

    write(site, name, "old")
    site.wait_for(lambda: has("old"), "the node to obey the old broker")

    process = agent.process
    assert process is not None
    if is_asleep:
        process.send_signal(signal.SIGSTOP)
    make_anew(site)
    write(site, name, "new")
    process.send_signal(signal.SIGCONT)
    site.wait_for(lambda: has("new"), "the node to obey the new broker")
    status = site.ctl("assignment", "status", "pinned", "--wait", "30s", "--json")
    why = site.ctl("why", name)

    assert status.code == 0
    assert [(one["wanted"], one["revision"], one["state"]) for one in status.named("standing")] == [
        (2, 2, "converged")
    ]
    assert why.out.startswith(f"{name} is in the desired state: 2 assignments converged"), why.out
