"""Who may hold what: errors of policies and shares."""

from dataclasses import dataclass
from typing import ClassVar

from kvext.errors.base import KvextError

__all__ = ["SharesConflict", "TenancyError", "UnknownPolicy"]


@dataclass(eq=False)
class TenancyError(KvextError):
    """Who may hold what cannot be decided as asked."""


@dataclass(eq=False)
class UnknownPolicy(TenancyError):
    """No eviction policy has this name. `nearest` is empty when nothing comes close."""

    policy: str
    nearest: str
    known: str

    _says: ClassVar[str] = "there is no eviction policy {self.policy!r}; choose one of {self.known}"


@dataclass(eq=False)
class SharesConflict(TenancyError):
    """Shares of a cache that cannot all be kept, or that say nothing; names whose they are."""

    tenants: tuple[str, ...]
    reason: str
    """The fact, with its values."""
    remedy: str

    _says = "{self.whose} cannot be kept: {self.reason}; {self.remedy}"

    @property
    def whose(self) -> str:
        """The tenants, the first few of them by name."""
        named = ", ".join(repr(tenant) for tenant in self.tenants[:8])
        more = len(self.tenants) - 8
        listed = f"{named} and {more} more" if more > 0 else named
        return f"the share of tenant {listed}" if len(self.tenants) == 1 else f"shares of {listed}"
