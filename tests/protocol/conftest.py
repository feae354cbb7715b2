"""Small models and adapters, and a digest cache of the test's own."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kvext.protocol.digest import digest_model

ModelMaker = Callable[[str], Path]
Identify = Callable[[Path], bytes]
FlipBit = Callable[[Path], None]
Clock = Callable[[], float]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "default-cache"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def later() -> Clock:
    """A clock that lets files of this test count as settled."""
    return lambda: time.time() + 3600


@pytest.fixture
def config() -> Mapping[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "rope_theta": 10000.0,
        "_name_or_path": "someone/model",
        "transformers_version": "5.0.0",
    }


@pytest.fixture
def make_model(tmp_path: Path) -> ModelMaker:
    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "model-00001-of-00002.safetensors").write_bytes(bytes(range(256)) * 40)
        (folder / "model-00002-of-00002.safetensors").write_bytes(b"second" * 1000)
        (folder / "config.json").write_text("{}")
        return folder

    return make


@pytest.fixture
def make_adapter(tmp_path: Path) -> ModelMaker:
    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        config = {"r": 8, "lora_alpha": 16, "base_model_name_or_path": name}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        (folder / "adapter_model.safetensors").write_bytes(b"lora" * 500)
        return folder

    return make


@pytest.fixture
def identify(cache: Path, config: Mapping[str, object], later: Clock) -> Identify:
    return lambda folder: digest_model(folder, config, cache_folder=cache, clock=later)


@pytest.fixture
def flip_bit() -> FlipBit:
    """Changes the lowest bit of a file's first byte; size and mtime stay as they were."""

    def flip(path: Path) -> None:
        before = path.stat()
        with path.open("r+b") as file:
            first = file.read(1)
            file.seek(0)
            file.write(bytes([first[0] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()
        assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)

    return flip
