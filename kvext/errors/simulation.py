"""What `kvext simulate` cannot replay."""

from dataclasses import dataclass

from kvext.errors.base import KvextError

__all__ = ["CapacityError", "ScenarioError", "SimulationError", "TraceError"]


@dataclass(eq=False)
class SimulationError(KvextError):
    """A simulation cannot be run on what it was given."""


@dataclass(eq=False)
class TraceError(SimulationError):
    """A trace is broken or foreign; `line` is 0 where no single line is to blame."""

    path: str
    line: int
    reason: str
    remedy: str

    _says = "trace {self.place}: {self.reason}; {self.remedy}"

    @property
    def place(self) -> str:
        """File and line."""
        return _place(self.path, self.line)


@dataclass(eq=False)
class ScenarioError(SimulationError):
    """A scenario is broken or contradicts itself; `line` is 0 where no line is to blame."""

    path: str
    line: int
    reason: str
    remedy: str

    _says = "scenario {self.place}: {self.reason}; {self.remedy}"

    @property
    def place(self) -> str:
        """File and line."""
        return _place(self.path, self.line)


@dataclass(eq=False)
class CapacityError(SimulationError):
    """A capacity that holds the whole trace: nothing would ever leave, so no policy matters."""

    capacity_blocks: int
    largest_blocks: int
    """Distinct blocks of the trace: what the largest useful capacity is."""

    _says = (
        "capacity of {self.capacity_blocks} blocks is larger than the trace, which has "
        "{self.largest_blocks} distinct blocks; give {self.largest_blocks} or less"
    )


def _place(path: str, line: int) -> str:
    return f"{path}, line {line}" if line else path
