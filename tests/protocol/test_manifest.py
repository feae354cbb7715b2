"""The manifest names tensors by name, type and shape, never by their values."""

from pathlib import Path

import pytest

from kvext.errors import IdentityUnknown
from kvext.protocol.manifest import tensor_manifest
from kvext.testing import tiny_llama


def test_other_values_of_the_same_tensors_have_the_same_manifest(tmp_path: Path) -> None:
    one, other = tiny_llama(tmp_path / "one", seed=1), tiny_llama(tmp_path / "other", seed=2)
    assert tensor_manifest(one) == tensor_manifest(other)


def test_other_types_have_another_manifest(tmp_path: Path) -> None:
    one = tiny_llama(tmp_path / "one", dtype="float32")
    other = tiny_llama(tmp_path / "other", dtype="bfloat16")
    assert tensor_manifest(one) != tensor_manifest(other)


def test_missing_tensor_changes_the_manifest(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model")
    before = tensor_manifest(folder)
    (file,) = folder.glob("*.safetensors")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"model.norm.weight", b"model.none.weight"))
    assert tensor_manifest(folder) != before


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, (5).to_bytes(8, "little") + b"[1,2]"])
def test_damaged_header_is_unknown_not_an_accident(tmp_path: Path, content: bytes) -> None:
    folder = tiny_llama(tmp_path / "model")
    (file,) = folder.glob("*.safetensors")
    file.write_bytes(content)
    with pytest.raises(IdentityUnknown):
        tensor_manifest(folder)


def test_other_formats_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"weights")
    with pytest.raises(IdentityUnknown, match="no safetensors"):
        tensor_manifest(tmp_path)
