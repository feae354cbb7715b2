"""Which bytes an engine serves: known only while nothing can have changed since it read them."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kvext.errors import IdentityUnknown
from kvext.testing import tiny_llama

pytest.importorskip("psutil", reason="comes with the engine")

from kvext.vllm.epoch import LoadEpoch
from kvext.vllm.identity import engine_model_digest, model_folder

LATER = LoadEpoch(time.time() + 3600)
"""An engine that starts in an hour: every file is older."""


@dataclass
class HfConfig:
    hidden_size: int = 64

    def to_dict(self) -> dict[str, object]:
        return {"hidden_size": self.hidden_size, "_name_or_path": "anywhere"}


@dataclass
class ModelConfig:
    model: str
    model_weights: str = ""
    revision: str | None = None
    dtype: str = "torch.float32"
    quantization: str | None = None
    quantization_config: None = None
    max_model_len: int = 2048
    hf_config: HfConfig = field(default_factory=HfConfig)


@dataclass
class LoadConfig:
    load_format: str = "auto"
    download_dir: str | None = None


@dataclass
class EngineConfig:
    """The part of vLLM's configuration that identity reads."""

    model_config: ModelConfig
    load_config: LoadConfig = field(default_factory=LoadConfig)


def config_of(folder: Path, **model: Any) -> Any:
    return EngineConfig(ModelConfig(str(folder), **model))


def digest_of(config: Any, epoch: LoadEpoch) -> bytes:
    return engine_model_digest(config, model_folder(config), epoch)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "model", num_layers=1, hidden_size=64)


def test_the_same_bytes_at_another_path_are_the_same_model(folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    other = tiny_llama(tmp_path / "model", num_layers=1, hidden_size=64)
    digests = {digest_of(config_of(path), LATER) for path in (moved, other)}
    assert len(digests) == 1


def test_what_changes_kv_changes_the_identity(folder: Path) -> None:
    plain = digest_of(config_of(folder), LATER)
    others = [
        config_of(folder, dtype="torch.bfloat16"),
        config_of(folder, quantization="fp8"),
        config_of(folder, hf_config=HfConfig(hidden_size=65)),
    ]
    assert plain not in {digest_of(config, LATER) for config in others}


def test_files_changed_after_the_engine_started_have_no_identity(folder: Path) -> None:
    begun = LoadEpoch(time.time() - 3600)
    with pytest.raises(IdentityUnknown, match="changed after the engine was started"):
        digest_of(config_of(folder), begun)


def test_a_link_that_was_turned_after_the_engine_started_has_no_identity(
    folder: Path, tmp_path: Path
) -> None:
    newest_s = max(path.stat().st_ctime for path in folder.iterdir())
    begun = LoadEpoch(newest_s + 0.03)
    digest_of(config_of(folder), begun)
    link = tmp_path / "current"
    while time.time() <= newest_s + 0.06:  # the link must be younger than the engine
        os.sched_yield()
    link.symlink_to(folder)
    with pytest.raises(IdentityUnknown, match="changed after the engine was started"):
        digest_of(config_of(link), begun)


@pytest.mark.parametrize("load_format", ["dummy", "runai_streamer", "tensorizer", "sharded_state"])
def test_weights_that_come_from_no_plain_files_have_no_identity(
    folder: Path, load_format: str
) -> None:
    config = config_of(folder)
    config.load_config.load_format = load_format
    with pytest.raises(IdentityUnknown, match=load_format):
        digest_of(config, LATER)


def test_a_hub_model_that_is_not_cached_has_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub", reason="comes with the engine")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = EngineConfig(
        ModelConfig("no-such-org/no-such-model"), LoadConfig(download_dir=str(tmp_path))
    )
    unknown: Any = config
    with pytest.raises(IdentityUnknown, match="the hub's cache does not have it"):
        digest_of(unknown, LATER)


def test_an_epoch_only_moves_forward() -> None:
    epoch = LoadEpoch(100.0)
    epoch.mark_idle(50.0)
    first = epoch.begun_ns
    epoch.mark_idle(200.0)
    assert first < 100 * 10**9 < epoch.begun_ns


def renamed_after(epoch: LoadEpoch, folder: Path) -> None:
    """Rename a folder away and back, until its time of change is after `epoch`."""
    away = folder.with_name("away")
    while folder.stat().st_ctime_ns <= epoch.begun_ns:
        folder.rename(away)
        away.rename(folder)


@pytest.mark.parametrize("level", ["model", "parent"])
def test_folder_renamed_into_place_after_the_start_has_no_identity(
    tmp_path: Path, level: str
) -> None:
    folder = tiny_llama(tmp_path / "parent" / "model")
    parent = folder.parent
    epoch = LoadEpoch(max(folder.stat().st_ctime, parent.stat().st_ctime) + 0.1)
    assert engine_model_digest(config_of(folder), folder, epoch), "the control"
    renamed_after(epoch, folder if level == "model" else parent)
    with pytest.raises(IdentityUnknown, match="changed after"):
        engine_model_digest(config_of(folder), folder, epoch)


def test_new_neighbour_of_a_model_leaves_its_identity_known(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "parent" / "model")
    epoch = LoadEpoch(folder.stat().st_ctime + 0.1)
    neighbour = folder.parent / "neighbour"
    while folder.parent.stat().st_ctime_ns <= epoch.begun_ns:
        neighbour.touch()
        neighbour.unlink()
    assert engine_model_digest(config_of(folder), folder, epoch)
