"""What is wrong with the user's settings."""

from dataclasses import dataclass

from kvext.errors.base import KvextError

__all__ = [
    "ConfigError",
    "ConfigFileError",
    "EngineMissing",
    "InvalidOption",
    "OptionConflict",
    "UnknownOption",
]


@dataclass(eq=False)
class ConfigError(KvextError):
    """A setting that the user gave cannot be used."""


@dataclass(eq=False)
class UnknownOption(ConfigError):
    """An option that no schema knows. `nearest` is empty when nothing comes close."""

    option: str
    nearest: str
    known: tuple[str, ...]

    _says = "unknown option {self.option!r}; {self.remedy}"

    @property
    def remedy(self) -> str:
        """The nearest known option, or all of them."""
        if self.nearest:
            return f"did you mean {self.nearest!r}?"
        return f"use one of {', '.join(self.known)}"


@dataclass(eq=False)
class InvalidOption(ConfigError):
    """An option whose value is impossible; `remedy` says what to write instead."""

    option: str
    value: object
    remedy: str

    _says = "option {self.option!r} cannot be {self.value!r}; {self.remedy}"


@dataclass(eq=False)
class OptionConflict(ConfigError):
    """An option that excludes what kvext itself has to set."""

    option: str
    reason: str
    remedy: str

    _says = "option {self.option!r} cannot be used here: {self.reason}; {self.remedy}"


@dataclass(eq=False)
class ConfigFileError(ConfigError):
    """The options' file is missing, unreadable or not TOML."""

    path: str
    reason: str

    _says = "options file {self.path!r} cannot be used: {self.reason}; correct it or leave it out"


@dataclass(eq=False)
class EngineMissing(ConfigError):
    """The engine's command is not on the PATH; `remedy` says how to install it."""

    command: str
    remedy: str

    _says = "the command {self.command!r} is not on the PATH; {self.remedy}"
