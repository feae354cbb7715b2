"""One schema for every knob: its name, its default, its meaning and its limits.

The same options come inline (an engine's JSON), from a TOML file or from `kvext serve`;
inline ones win over the file's. The defaults work with no file at all.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kvext.errors import ConfigFileError, InvalidOption, UnknownOption

__all__ = [
    "FILE_OPTION",
    "Config",
    "OptionInfo",
    "describe_options",
    "format_bytes",
    "load_config",
    "parse_bytes",
]

FILE_OPTION = "config"
"""The inline option that names a TOML file with the others."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_UNITS = {"": 1, "b": 1} | {
    prefix + suffix: 1 << shift
    for shift, prefix in ((10, "k"), (20, "m"), (30, "g"), (40, "t"))
    for suffix in ("", "b", "ib")
}
_NAME_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\Z"
_MIN_POOL_BYTES = 1 << 20
"""Less holds the region's own tables and hardly a block."""
_SIZE_REMEDY = 'write a number and a unit, such as "64GiB"'
# A deadline longer than a day is a slip of the unit, and infinity would never come.
_MAX_DEADLINE_S = 86_400
_Deadline = Annotated[float, msgspec.Meta(gt=0, le=_MAX_DEADLINE_S)]


def _option(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every option that a user can set; `describe_options()` lists them with their meaning."""

    pool_size: Annotated[
        str,
        _option(
            'Size of the pool if it must be created, such as "64GiB"; '
            '"auto" takes half of what its folder has free.'
        ),
    ] = "auto"
    pool_name: Annotated[
        str,
        msgspec.Meta(pattern=_NAME_PATTERN),
        _option("Name of the pool; engines with the same name and folder share it."),
    ] = "default"
    pool_folder: Annotated[
        str,
        msgspec.Meta(pattern="^/"),
        _option("Folder of the pool's region, on a file system that lives in memory."),
    ] = "/dev/shm"  # noqa: S108 - the host's shared memory is where engines meet
    load: Annotated[
        Literal["sync", "async", "blocking"],
        _option(
            'How blocks come in: "sync" within the step, large loads behind the computing of '
            'earlier layers; "async" while others compute; "blocking" within the step, all before '
            "it computes."
        ),
    ] = "sync"
    store: Annotated[
        bool, _option("Whether this engine stores what it computes, or only reads.")
    ] = True
    store_admission: Annotated[
        bool,
        _option(
            "Whether a full pool takes no blocks of kinds that are hardly ever asked for again, "
            "such as one user's documents read once."
        ),
    ] = False
    always_load: Annotated[
        bool,
        _option(
            "Whether to load what the pool has even where computing it again is measured to be "
            "faster."
        ),
    ] = False
    shadow_share: Annotated[
        float,
        msgspec.Meta(ge=0, le=1),
        _option(
            "Share of hits that are computed instead of loaded and compared with the pool; such a "
            "request waits as if nothing had been found."
        ),
    ] = 0.001
    lease_s: Annotated[
        _Deadline, _option("Seconds that blocks found for a request stay pinned at most.")
    ] = 30.0
    lock_wait_s: Annotated[
        _Deadline, _option("Seconds to wait for the pool's lock before a store is given up.")
    ] = 0.2
    digest_wait_s: Annotated[
        _Deadline,
        _option("Seconds that a start may wait for the weights' digest before serving uncached."),
    ] = 20.0

    @property
    def pool_bytes(self) -> int | None:
        """`pool_size` in bytes, or None for "auto"."""
        return None if self.pool_size == "auto" else parse_bytes(self.pool_size)


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option, as documentation and `--help` show it."""

    name: str
    default: object
    description: str
    kind: str
    """What a value must be, in words."""


def load_config(options: Mapping[str, object]) -> Config:
    """Check options and complete them with defaults.

    Args:
        options: Inline options; `config` among them names a TOML file whose options apply
            where no inline one does.

    Returns:
        The configuration.

    Raises:
        UnknownOption: Named with the nearest known one.
        InvalidOption: A value has the wrong type or is out of range.
        ConfigFileError: The file is missing or is not TOML.
    """
    inline = dict(options)
    path = inline.pop(FILE_OPTION, None)
    if path is not None:
        if not isinstance(path, str) or not path:
            raise InvalidOption(FILE_OPTION, path, "give the path of a TOML file")
        inline = {**_read_file(Path(path)), **inline}
    for name in inline:
        _refuse_unknown(name)
    for name, value in inline.items():
        _check_value(name, value)
    return msgspec.convert(inline, Config)


def parse_bytes(text: str, option: str = "size") -> int:
    """Read a size such as "64GiB", "1.5g" or "4096"; units are powers of 1024.

    Args:
        text: A number and, after it, B, KiB, MiB, GiB or TiB (or K, KB and so on).
        option: What an error calls it.

    Returns:
        Bytes, at least 1.

    Raises:
        InvalidOption: `text` is no such size.
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InvalidOption(option, text, _SIZE_REMEDY)
    num_bytes = int(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor
    if not 1 <= num_bytes < 2**63:
        raise InvalidOption(option, text, "give a size between 1 byte and 8 million TiB")
    return num_bytes


def format_bytes(num_bytes: int) -> str:
    """A size for people: exact where a whole unit fits, else with one decimal."""
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(num_bytes) >= 1 << shift:
            whole, rest = divmod(num_bytes, 1 << shift)
            return f"{num_bytes / (1 << shift):.1f} {unit}" if rest else f"{whole} {unit}"
    return f"{num_bytes} B"


def describe_options() -> Iterator[OptionInfo]:
    """Every option with its default and meaning, in the schema's order."""
    for field in msgspec.structs.fields(Config):
        info = msgspec.inspect.type_info(field.type)
        description = ""
        while isinstance(info, msgspec.inspect.Metadata):
            description = str((info.extra_json_schema or {}).get("description", description))
            info = info.type
        yield OptionInfo(field.name, field.default, description, _kind(info))


def _kind(info: msgspec.inspect.Type) -> str:
    if isinstance(info, msgspec.inspect.LiteralType):
        return " or ".join(f'"{value}"' for value in info.values)
    if isinstance(info, msgspec.inspect.BoolType):
        return "true or false"
    if isinstance(info, msgspec.inspect.FloatType):
        least = f"at least {info.ge:g}" if info.ge is not None else f"above {info.gt:g}"
        return f"a number {least} and at most {info.le:g}"
    return "a string"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigFileError(str(path), reason or type(error).__name__) from error


def _refuse_unknown(name: str) -> None:
    known = Config.__struct_fields__
    if name not in known:
        nearest = difflib.get_close_matches(name, (*known, FILE_OPTION), n=1)
        raise UnknownOption(name, nearest[0] if nearest else "", known)


def _check_value(name: str, value: object) -> None:
    """Check one option alone, so that the error can name it."""
    try:
        msgspec.convert({name: value}, Config)
    except msgspec.ValidationError:
        raise InvalidOption(name, value, _remedy(name)) from None
    if name == "pool_size" and value != "auto" and parse_bytes(str(value), name) < _MIN_POOL_BYTES:
        remedy = f'give "{format_bytes(_MIN_POOL_BYTES)}" or more; a number alone means bytes'
        raise InvalidOption(name, value, remedy)


def _remedy(name: str) -> str:
    if name == "pool_size":
        return _SIZE_REMEDY
    if name == "pool_name":
        return "use letters, digits, '.', '_' and '-', at most 100 and no '.' in front"
    if name == "pool_folder":
        return "give an absolute path"
    kind = next(option.kind for option in describe_options() if option.name == name)
    return f"give {kind}"
