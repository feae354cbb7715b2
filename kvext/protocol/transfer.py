"""What can become of a block on its way into or out of a tier.

The numbers are the native core's: a batch answers with one byte a block.
"""

from enum import IntEnum, StrEnum

__all__ = ["LoadOutcome", "LoadWay", "MissReason", "StoreOutcome"]


class StoreOutcome(IntEnum):
    """What became of one block that was offered for storing."""

    STORED = 0
    EXISTS = 1
    """Another writer was first; blocks are immutable, so its bytes are as good."""
    NO_SPACE = 2
    """Every extent is pinned or being written."""
    LOCK_TIMEOUT = 3
    """The allocation lock stayed taken until the deadline."""
    INDEX_FULL = 4
    FENCED = 5
    """This process was declared dead in between; its write does not count."""
    TOO_LARGE = 6
    """The record does not fit an extent."""
    BYPASSED = 7
    """An operator has switched the tier off."""
    NAMESPACES_FULL = 8
    """The tier holds blocks of so many namespaces that it has no name left for another one."""

    @property
    def is_rejected(self) -> bool:
        """Whether the block is not in the tier although it was offered."""
        return self >= StoreOutcome.NO_SPACE


class LoadOutcome(IntEnum):
    """What became of one block that was to be loaded."""

    LOADED = 0
    STALE = 1
    """The extent was given to another block in between; the engine recomputes."""
    CORRUPT = 2
    """The checksum is wrong: the block is quarantined and recomputed."""


class LoadWay(StrEnum):
    """How what was found came in, or that it did not."""

    BLOCKING = "blocking"
    """Whole, before the step's forward pass."""
    LAYERWISE = "layerwise"
    """Within the step, each layer before it is used, behind the computing of those before it."""
    ASYNC = "async"
    """Beside the steps, while other requests are computed."""
    RECOMPUTE = "recompute"
    """Not at all: computing was measured to be faster."""
    SHADOW = "shadow"
    """Not at all: it is computed to be compared with what was found."""
    UNREPORTED = "unreported"
    """Within a step of which the worker has not told yet."""


class MissReason(StrEnum):
    """Why a token of a prompt was not served from the pool."""

    NOT_FOUND = "not_found"
    """No such block: never stored, or evicted since."""
    SUB_BLOCK = "sub_block"
    """The tokens do not fill a block."""
    LAST_TOKEN = "last_token"  # noqa: S105 - no password
    """The engine must compute at least one token itself."""
    STALE = "stale"
    """Found, but evicted before it was copied."""
    CORRUPT = "corrupt"
    """Found, but its checksum was wrong."""
    IDENTITY_UNKNOWN = "identity_unknown"
    """The weights or the adapter cannot be named for certain."""
    UNSUPPORTED = "unsupported"
    """The request has inputs that the chain does not encode."""
    POOL_UNAVAILABLE = "pool_unavailable"
    """No pool is attached."""
    BYPASSED = "bypassed"
    """An operator has switched the pool off."""
    RECOMPUTE_FASTER = "recompute_faster"
    """Found, but computing it again takes less time than loading it."""
    SHADOW = "shadow"
    """Found, but computed again to be compared with what was found."""
