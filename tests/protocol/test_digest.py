"""Names of models and adapters: contents count, places and times do not."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kvext.errors import IdentityUnknown
from kvext.protocol.digest import (
    canonical_config,
    digest_adapter,
    digest_files,
    digest_model,
    weights_snapshot,
)

ModelMaker = Callable[[str], Path]
Identify = Callable[[Path], bytes]
FlipBit = Callable[[Path], None]
Clock = Callable[[], float]


def _weights(folder: Path) -> Path:
    return next(iter(sorted(folder.glob("*.safetensors"))))


def test_same_bytes_at_another_path_have_the_same_digest(
    make_model: ModelMaker, identify: Identify, tmp_path: Path
) -> None:
    original = make_model("original")
    shutil.copytree(original, tmp_path / "deep" / "copy")
    assert identify(original) == identify(tmp_path / "deep" / "copy")


def test_flipped_bit_with_size_and_mtime_kept_gives_another_digest(
    make_model: ModelMaker, identify: Identify, cache: Path, flip_bit: FlipBit
) -> None:
    folder = make_model("model")
    before = identify(folder)
    assert identify(folder) == before
    assert list(cache.glob("*.json"))
    flip_bit(_weights(folder))
    changed = identify(folder)
    assert changed != before
    flip_bit(_weights(folder))
    assert identify(folder) == before


def test_weights_swapped_between_two_files_give_another_digest(
    make_model: ModelMaker, identify: Identify
) -> None:
    folder = make_model("model")
    before = identify(folder)
    first, second = sorted(folder.glob("*.safetensors"))
    first.rename(folder / "spare")
    second.rename(first)
    (folder / "spare").rename(second)
    assert identify(folder) != before


def test_progress_counts_every_byte_up_to_the_total(
    make_model: ModelMaker, cache: Path, config: Mapping[str, object]
) -> None:
    folder = make_model("model")
    calls: list[tuple[int, int]] = []
    digest_model(folder, config, cache_folder=cache, on_progress=lambda *call: calls.append(call))
    assert calls == [(10240, 16240), (16240, 16240), (16240, 16240)]


def test_provenance_in_the_configuration_does_not_count(
    make_model: ModelMaker, config: Mapping[str, object]
) -> None:
    elsewhere = {
        **dict(sorted(config.items(), reverse=True)),
        "_name_or_path": "/elsewhere",
        "transformers_version": "6",
    }
    folder = make_model("model")
    assert digest_model(folder, config) == digest_model(folder, elsewhere)


@pytest.mark.parametrize("change", [{"rope_theta": 500000.0}, {"hidden_size": 65}, {"extra": None}])
def test_architecture_counts(
    make_model: ModelMaker, change: Mapping[str, object], config: Mapping[str, object]
) -> None:
    folder = make_model("model")
    assert digest_model(folder, config) != digest_model(folder, {**config, **change})


def test_configuration_is_canonical_at_every_depth() -> None:
    one: dict[Any, object] = {"a": {"x": 1, "_name_or_path": "p"}, 3: (1, 2), "s": {"q", "p"}}
    other = {"s": {"p", "q"}, "3": [1, 2], "a": {"x": 1}}
    assert canonical_config(one, subject="m") == canonical_config(other, subject="m")


def test_configuration_value_without_a_stable_text_has_no_identity() -> None:
    with pytest.raises(IdentityUnknown, match="object without value"):
        canonical_config({"hook": object()}, subject="m")


def test_code_beside_the_weights_counts_only_where_the_configuration_names_it(
    make_model: ModelMaker, config: Mapping[str, object]
) -> None:
    folder = make_model("model")
    mapped = {**config, "auto_map": {"AutoModel": "modeling_own.Own"}}
    plain, own = digest_model(folder, config), digest_model(folder, mapped)
    (folder / "modeling_own.py").write_text("scale = 2")
    assert digest_model(folder, config) == plain
    assert digest_model(folder, mapped) != own


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".gguf"])
def test_weights_of_other_formats_count(
    make_model: ModelMaker, identify: Identify, suffix: str
) -> None:
    folder = make_model("model")
    before = identify(folder)
    (folder / f"more{suffix}").write_bytes(b"more")
    assert identify(folder) != before


def test_one_weights_file_is_a_model(tmp_path: Path, identify: Identify) -> None:
    (tmp_path / "a.gguf").write_bytes(b"gguf")
    (tmp_path / "b.gguf").write_bytes(b"gguf")
    (tmp_path / "c.gguf").write_bytes(b"gguF")
    a, b, c = (identify(tmp_path / f"{name}.gguf") for name in "abc")
    assert a == b != c


def test_folder_without_weights_has_no_identity(tmp_path: Path, identify: Identify) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(IdentityUnknown, match="holds no weights file"):
        identify(tmp_path)
    with pytest.raises(IdentityUnknown, match="No such file"):
        identify(tmp_path / "missing")


def test_dangling_link_has_no_identity(make_model: ModelMaker, identify: Identify) -> None:
    folder = make_model("model")
    (folder / "model-3.safetensors").symlink_to("nowhere")
    with pytest.raises(IdentityUnknown, match="No such file"):
        identify(folder)


def test_file_that_changes_while_it_is_read_has_no_identity(
    make_model: ModelMaker, cache: Path, later: Clock, config: Mapping[str, object]
) -> None:
    folder = make_model("model")

    def interfere(_done: int, _total: int) -> None:
        with _weights(folder).open("ab") as file:
            file.write(b"x")

    with pytest.raises(IdentityUnknown, match="changed while"):
        digest_model(folder, config, cache_folder=cache, clock=later, on_progress=interfere)
    assert not list(cache.glob("*.json"))


def test_file_that_comes_while_others_are_read_leaves_no_identity(
    make_model: ModelMaker, cache: Path, config: Mapping[str, object]
) -> None:
    folder = make_model("model")

    def interfere(_done: int, _total: int) -> None:
        (folder / "model-3.safetensors").write_bytes(b"late")

    with pytest.raises(IdentityUnknown, match="changed while"):
        digest_model(folder, config, cache_folder=cache, on_progress=interfere)


def test_files_have_the_sha256_of_their_bytes(make_model: ModelMaker, cache: Path) -> None:
    paths = sorted(make_model("model").glob("*.safetensors"))
    expected = tuple(hashlib.sha256(path.read_bytes()).digest() for path in paths)
    assert digest_files(paths, cache_folder=cache) == expected


def test_adapter_with_the_same_bytes_under_another_name_is_the_same(
    make_adapter: ModelMaker, cache: Path
) -> None:
    one, other = make_adapter("one"), make_adapter("other")
    assert digest_adapter(one, cache_folder=cache) == digest_adapter(other, cache_folder=cache)


def test_adapter_with_another_scale_is_another(make_adapter: ModelMaker, cache: Path) -> None:
    folder = make_adapter("one")
    before = digest_adapter(folder, cache_folder=cache)
    (folder / "adapter_config.json").write_text('{"r": 8, "lora_alpha": 32}')
    assert digest_adapter(folder, cache_folder=cache) != before


def test_adapter_with_a_flipped_bit_is_another(
    make_adapter: ModelMaker, cache: Path, later: Clock, flip_bit: FlipBit
) -> None:
    folder = make_adapter("one")
    before = digest_adapter(folder, cache_folder=cache, clock=later)
    flip_bit(_weights(folder))
    assert digest_adapter(folder, cache_folder=cache, clock=later) != before


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_adapter_without_a_readable_configuration_has_no_identity(
    make_adapter: ModelMaker, cache: Path, content: str | None
) -> None:
    folder = make_adapter("one")
    (folder / "adapter_config.json").unlink()
    if content is not None:
        (folder / "adapter_config.json").write_text(content)
    with pytest.raises(IdentityUnknown, match=r"adapter_config\.json"):
        digest_adapter(folder, cache_folder=cache)


def test_adapter_and_model_of_the_same_bytes_are_not_confused(
    make_adapter: ModelMaker, cache: Path
) -> None:
    folder = make_adapter("one")
    config = json.loads((folder / "adapter_config.json").read_text())
    model = digest_model(folder, config, cache_folder=cache)
    assert model != digest_adapter(folder, cache_folder=cache)


def test_snapshot_changes_with_weights_and_adapter_settings_only(
    make_adapter: ModelMaker, flip_bit: FlipBit
) -> None:
    folder = make_adapter("one")
    before = weights_snapshot(folder)
    (folder / "README.md").write_text("notes")
    assert weights_snapshot(folder) == before
    flip_bit(_weights(folder))
    flipped = weights_snapshot(folder)
    assert flipped != before
    (folder / "adapter_config.json").write_text("{}")
    assert weights_snapshot(folder) != flipped


def test_snapshot_of_a_missing_folder_has_no_identity(tmp_path: Path) -> None:
    with pytest.raises(IdentityUnknown):
        weights_snapshot(tmp_path / "missing")
