"""`ccm agent status|disable|enable` where no agent runs: what is said, and what stands on disk after it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from ccm_agent.agent.runs.admission import FILE, read_disabled
from ccm_agent.agent.state.state_folder import StateLock
from ccm_agent.cli import main
from tests.support.ccm_json import checked


@pytest.fixture(autouse=True)
def own_process(blockbuster: BlockBuster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is a process of its own: it may block."""
    blockbuster.deactivate()
    monkeypatch.setenv("SUDO_USER", "maria")


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration whose state folder is there."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/identity").write_text("web1\n")
    (tmp_path / "agent.yaml").write_text(json.dumps({"state_dir": str(tmp_path / "state")}))
    return str(tmp_path / "agent.yaml")


def test_a_node_is_disabled_while_its_agent_is_off(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.run(["agent", "disable", "--config", config, "--for", "4h", "--why", "the disk\nis replaced"])

    disabled = read_disabled(Path(config).parent / "state")
    assert disabled is not None
    assert disabled.until is not None
    assert (code, disabled.why, disabled.by) == (0, "the disk is replaced", "maria")
    assert (disabled.until - disabled.since).total_seconds() == 4 * 3600
    assert capsys.readouterr().out == (
        f"disabled until {disabled.until:%Y-%m-%d %H:%M:%SZ} by maria: the disk is replaced\n"
        "no agent is running; the next one reads the change\n"
    )


def test_enabling_twice_is_allowed(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["agent", "--config", config, "disable", "--why", "x", "--json"])
    main.run(["agent", "--config", config, "enable"])
    main.run(["agent", "--config", config, "enable", "--json"])

    said = capsys.readouterr().out
    first, rest = said[: said.index("}\nenabled") + 2], said[said.index("enabled\n") :]
    disabled = checked("ccm_agent_disable", first)
    assert disabled["agent"] == "off"
    assert "until" not in disabled["disabled"]
    assert rest.startswith("enabled\nno agent is running; the next one reads the change\n")
    assert checked("ccm_agent_enable", rest.split("\n", 2)[2]) == {"was_disabled": False, "agent": "off"}
    assert not (Path(config).parent / "state" / FILE).exists()


def test_the_status_of_an_agent_that_never_ran_is_read_from_disk(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main.run(["agent", "disable", "--config", config, "--why", "x"])
    capsys.readouterr()

    code = main.run(["agent", "status", "--config", config])

    assert (code, capsys.readouterr().out) == (
        0,
        "web1: the agent is not running\n"
        "  Disabled:     by maria: x\n"
        "  Run:          none\n"
        "  Last run:     none since the agent started\n"
        "  Spool:        0 events wait for the broker\n",
    )


def test_an_agent_that_does_not_answer_is_named_by_its_process(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = StateLock(Path(config).parent / "state")
    claim.take()
    try:
        main.run(["agent", "status", "--config", config, "--json"])
    finally:
        claim.release()
    held = checked("ccm_agent_status", capsys.readouterr().out)
    main.run(["agent", "status", "--config", config, "--json"])
    free = checked("ccm_agent_status", capsys.readouterr().out)

    assert (held["running"], held["holder"]) == (False, os.getpid())
    assert (free["running"], free["holder"]) == (False, 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["disable"], "missing option '--why'; see `ccm agent disable --help`"),
        (
            ["disable", "--why", " "],
            "--why: give a reason; other operators see it in `ccmctl why` and `ccm agent status`",
        ),
        (["disable", "--why", "x", "--for", "soon"], "--for soon: `soon` is not a duration"),
        (["disable", "--why", "x", "--for", "0"], "--for 0: must be between 1 second and 1 year"),
        (["disable", "--why", "x", "--for", "2y"], "--for 2y: must be between 1 second and 1 year"),
        (["run-once", "--within", "-1h"], "--within -1h: must be between 1 second and 1 year"),
        (["sttus"], "unknown command `sttus`, did you mean `status`?"),
    ],
)
def test_a_wrong_command_line_changes_nothing(
    config: str, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code = main.run(["agent", "--config", config, *arguments])

    assert (code, sentence in capsys.readouterr().err) == (1, True)
    assert not (Path(config).parent / "state" / FILE).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_process_of_another_user_is_not_accepted_as_the_agent(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = Path(config).parent / "state"
    os.chown(state, 65_534, 65_534)

    code = main.run(["agent", "run-once", "--config", config])

    assert (code, capsys.readouterr().err) == (
        1,
        f"ccm: {state}: belongs to the user 65534, whose agent is not running; run this as that user\n",
    )


@pytest.mark.parametrize("verb", ["status", "enable"])
def test_a_state_folder_that_is_missing_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(json.dumps({"state_dir": str(tmp_path / "none")}))

    code = main.run(["agent", verb, "--config", str(config)])

    assert (code, capsys.readouterr().err) == (
        1,
        f"ccm: {tmp_path}/none: the state folder does not exist; install and start the agent first\n",
    )


def test_configuration_is_checked_at_the_path_that_status_reads(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.cli.agent.agent.CONFIG", config)
    monkeypatch.setattr("ccm_agent.cli.agent.agent_local.CONFIG", config)

    checked_it = main.run(["agent", "--check-config"])
    checked_out = capsys.readouterr().out
    status = main.run(["agent", "status"])

    assert (checked_it, checked_out, status) == (0, f"{config}: the configuration is valid\n", 0)
    assert main.run(["agent"]) == 1
    assert "missing option" in capsys.readouterr().err.lower()


def test_an_unknown_key_is_shown_without_its_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text('tokn: hidden-1\n"pasword": hidden-2\nnats: {usr: hidden-3}\n')

    assert main.run(["agent", "--config", str(config), "--check-config"]) == 1

    printed = capsys.readouterr()
    assert "unknown key `tokn`" in printed.err
    assert '"pasword": …' in printed.err
    assert "nats: {usr: …" in printed.err
    assert "hidden" not in printed.err + printed.out

    config.write_text("interval: shown\n")
    assert main.run(["agent", "--config", str(config), "--check-config"]) == 1
    assert "interval: shown" in capsys.readouterr().err
