"""What is read again, what is not, and what becomes of a damaged cache."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kvext.protocol.digest import digest_model
from kvext.protocol.digest_cache import default_cache_folder

ModelMaker = Callable[[str], Path]
Identify = Callable[[Path], bytes]
FlipBit = Callable[[Path], None]
Clock = Callable[[], float]


def test_known_files_are_not_read_again(
    make_model: ModelMaker, cache: Path, later: Clock, config: Mapping[str, object]
) -> None:
    folder = make_model("model")
    reads: list[int] = []

    def read_bytes() -> int:
        reads.clear()
        digest_model(
            folder,
            config,
            cache_folder=cache,
            clock=later,
            on_progress=lambda done, _: reads.append(done),
        )
        return len(reads)

    assert read_bytes() == 3  # a chunk for each file, and the end
    assert read_bytes() == 1


def test_file_that_has_just_changed_is_read_again(
    make_model: ModelMaker, cache: Path, config: Mapping[str, object]
) -> None:
    folder = make_model("model")
    changed_s = max(file.stat().st_ctime for file in folder.iterdir())
    digest_model(folder, config, cache_folder=cache, clock=lambda: changed_s + 0.5)
    assert not cache.exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"sha256": 3}', b"\xff" * 100], ids=repr)
def test_damaged_cache_is_read_over_and_written_anew(
    make_model: ModelMaker, identify: Identify, cache: Path, damage: bytes
) -> None:
    folder = make_model("model")
    before = identify(folder)
    entries = sorted(cache.glob("*.json"))
    good = [entry.read_bytes() for entry in entries]
    for entry in entries:
        entry.write_bytes(damage)
    assert identify(folder) == before
    assert [entry.read_bytes() for entry in entries] == good


def test_cache_entry_with_a_digest_that_is_none_is_not_believed(
    make_model: ModelMaker, identify: Identify, cache: Path
) -> None:
    folder = make_model("model")
    before = identify(folder)
    for entry in cache.glob("*.json"):
        entry.write_text(json.dumps({**json.loads(entry.read_text()), "sha256": "abc"}))
    assert identify(folder) == before


def test_cache_is_private_and_leaves_no_drafts(
    make_model: ModelMaker, identify: Identify, cache: Path
) -> None:
    identify(make_model("model"))
    assert cache.stat().st_mode & 0o777 == 0o700
    assert len(list(cache.iterdir())) == 2
    assert {entry.stat().st_mode & 0o777 for entry in cache.iterdir()} == {0o600}


def test_cache_folder_that_cannot_be_made_is_no_error(
    make_model: ModelMaker, tmp_path: Path, later: Clock, config: Mapping[str, object]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = make_model("model")
    in_file = tmp_path / "file" / "cache"
    digests = {digest_model(folder, config, cache_folder=in_file, clock=later)}
    digests.add(digest_model(folder, config, cache_folder=in_file, clock=later))
    assert len(digests) == 1


def _hub_model(root: Path, content: bytes, name: str | None = None) -> tuple[Path, Path]:
    """A hub cache: a snapshot of symbolic links to blobs that are named by their SHA-256."""
    blob = root / "blobs" / (name or hashlib.sha256(content).hexdigest())
    snapshot = root / "snapshots" / "0" / "model.safetensors"
    blob.parent.mkdir(parents=True)
    snapshot.parent.mkdir(parents=True)
    blob.write_bytes(content)
    snapshot.symlink_to(Path("../../blobs") / blob.name)
    return snapshot.parent, blob


def test_hub_blob_is_named_without_being_read(tmp_path: Path, identify: Identify) -> None:
    content = b"weights" * 1000
    hub, _ = _hub_model(tmp_path / "hub", content)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "model.safetensors").write_bytes(content)
    assert identify(hub) == identify(plain)
    misnamed, _ = _hub_model(tmp_path / "misnamed", content, name="ab" * 32)
    # Only its name can have made this difference.
    assert identify(misnamed) != identify(plain)


def test_hub_blob_that_was_changed_in_place_is_read(
    tmp_path: Path, identify: Identify, flip_bit: FlipBit
) -> None:
    hub, blob = _hub_model(tmp_path / "hub", b"weights" * 1000)
    before = identify(hub)
    assert identify(hub) == before
    flip_bit(blob)
    changed = identify(hub)
    assert changed != before
    assert identify(hub) == changed


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
