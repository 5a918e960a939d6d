import pytest

from ccm_agent.resources.file.model import FileProperties, parse_mode


@pytest.mark.parametrize(
    ("mode", "bits"),
    [
        pytest.param("0644", 0o644, id="standard octal"),
        pytest.param("644", 0o644, id="without a leading nought"),
        pytest.param("0o755", 0o755, id="with 0o"),
        pytest.param("0O700", 0o700, id="with 0O"),
        pytest.param("0000", 0, id="nothing at all"),
        pytest.param("4755", 0o4755, id="more than may be managed is still a number"),
    ],
)
def test_a_mode_is_read(mode: str, bits: int) -> None:
    assert parse_mode(mode) == bits


@pytest.mark.parametrize(
    "mode", ["", "64", "00644", "0888", "rw-r--r--", "0644 ", " 644", "-644", "0x1a4", "٠٦٤٤"]
)
def test_an_invalid_mode_is_none(mode: str) -> None:
    with pytest.raises(ValueError):
        parse_mode(mode)


@pytest.mark.parametrize(
    ("mode", "bits"),
    [
        ("0644", 0o755),
        ("0600", 0o700),
        ("0640", 0o750),
        ("0444", 0o555),
        ("0604", 0o705),
        ("0711", 0o711),
        ("0200", 0o300),
        ("0111", 0o111),
        ("0066", 0o077),
        ("0020", 0o030),
        ("0000", 0o000),
        ("755", 0o755),
    ],
)
def test_a_directory_gets_the_execute_bits_of_its_read_and_write_bits(mode: str, bits: int) -> None:
    assert FileProperties(name="/d", ensure="directory", mode=mode).mode_bits == bits


def test_a_file_gets_the_mode_it_is_given() -> None:
    assert FileProperties(name="/a", ensure="present", mode="0644").mode_bits == 0o644


@pytest.mark.parametrize(
    ("properties", "manages"),
    [
        pytest.param({}, False, id="nothing said"),
        pytest.param({"content": None}, False, id="null content"),
        pytest.param({"content": ""}, True, id="empty content"),
        pytest.param({"source": "/src"}, True, id="a source"),
        pytest.param({"source": ""}, False, id="an empty source"),
    ],
)
def test_content_is_managed_when_content_or_source_is_set(properties: dict[str, str], manages: bool) -> None:
    assert FileProperties(name="/a", **properties).manages_content is manages
