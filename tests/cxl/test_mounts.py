"""The mount table of a host that does not exist, and which of its entries a folder lies on."""

from pathlib import Path

from kvext.cxl.mounts import MountEntry, mount_of, read_mount_table


def test_mount_points_with_spaces_are_read(tmp_path: Path) -> None:
    line = r"30 25 0:27 / /my\040memory rw,nosuid shared:7 - tmpfs none rw,size=64k,huge=always"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(line + "\n")
    (entry,) = read_mount_table(tmp_path)
    assert (entry.point, entry.kind) == ("/my memory", "tmpfs")
    assert entry.options == ("rw", "nosuid", "size=64k", "huge=always")


def test_innermost_and_latest_mount_is_the_one_that_counts() -> None:
    outer, hidden, latest, sibling = (
        MountEntry("/", point, kind, ())
        for point, kind in (("/", "ext4"), ("/a", "xfs"), ("/a", "tmpfs"), ("/ab", "nfs"))
    )
    table = [outer, hidden, latest, sibling]
    assert mount_of(Path("/a/b"), table) is latest
    assert mount_of(Path("/c"), table) is outer
    assert mount_of(Path("/c"), []).kind == "unknown"
