"""Where digests are kept."""

from pathlib import Path

import pytest

from kvext.protocol.digest_cache import default_cache_folder


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/caches", "/caches"), ("", "HOME/.cache"), ("relative", "HOME/.cache")],
)
def test_cache_lies_where_the_desktop_specification_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    folder = Path(expected.replace("HOME", str(tmp_path))) / "kvext" / "digests"
    assert default_cache_folder() == folder
