import pytest

from ccm_agent.manifest.properties import make_properties
from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.file import TYPE


@pytest.mark.parametrize(
    ("mode", "typed"),
    [
        pytest.param(0o644, "0644", id="0644"),
        pytest.param(0o755, "0755", id="0755"),
        pytest.param(0o600, "0600", id="0600"),
        pytest.param(0o711, "0711", id="0711"),
        pytest.param(0o1777, "1777", id="01777"),
        pytest.param(644, "0644", id="644"),
        pytest.param(600, "0600", id="600"),
        pytest.param(444, "0444", id="444"),
        pytest.param(400, "0400", id="400"),
        pytest.param(0, "0000", id="0"),
    ],
)
def test_an_unquoted_mode_is_refused_with_the_probable_value(mode: int, typed: str) -> None:
    with pytest.raises(PropertyError) as caught:
        make_properties(TYPE, {"name": "/a", "mode": mode})

    assert caught.value.message == (
        f'`mode` must be quoted, as in mode: "{typed}"; unquoted it is the number {mode}'
    )
