"""What the doctor says: one finding a check, and what they come to together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "Report", "Section", "Status"]


class Status(StrEnum):
    """How much a finding matters, in rising order."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    WARNING = "warning"
    """Engines run, but slower, with less memory, or not for long."""
    ERROR = "error"
    """Engines cannot use the pool."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the host.

    Attributes:
        name: Stable; also the heading that explains it in `docs/doctor.md`.
        status: How much it matters.
        fact: What was found, with its value.
        mend: A command or a flag that changes it; empty if there is nothing to change.
        details: One line for each thing that the fact counts.
    """

    name: str
    status: Status
    fact: str
    mend: str = ""
    details: tuple[str, ...] = ()

    @property
    def docs(self) -> str:
        """Where the finding is explained, relative to the documentation's root."""
        return f"doctor.md#{self.name}"

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON-ready data."""
        return {
            "name": self.name,
            "status": self.status.value,
            "fact": self.fact,
            "mend": self.mend,
            "details": list(self.details),
            "docs": self.docs,
        }


@dataclass(frozen=True, slots=True)
class Section:
    """Findings on one theme."""

    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one host."""

    sections: tuple[Section, ...]

    @property
    def findings(self) -> Sequence[Finding]:
        """Those of all sections, in order."""
        return [finding for section in self.sections for finding in section.findings]

    @property
    def worst(self) -> Status:
        """The gravest status of all."""
        order = list(Status)
        return max((finding.status for finding in self.findings), key=order.index)

    def count(self, status: Status) -> int:
        """How many findings have this status."""
        return sum(finding.status is status for finding in self.findings)

    def exit_code(self, *, strict: bool) -> int:
        """1 if there is an error or, under `strict`, a warning; else 0."""
        bad = {Status.ERROR, Status.WARNING} if strict else {Status.ERROR}
        return int(self.worst in bad)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        return {
            "findings": [
                {"section": section.title, **finding.as_dict()}
                for section in self.sections
                for finding in section.findings
            ],
            "summary": {
                "status": self.worst.value,
                **{status.value: self.count(status) for status in Status},
            },
        }
