"""Everything kvext raises on purpose, each error with the fields that it talks about.

    KvextError
    ├── ConfigError               the user's settings
    │   ├── UnknownOption         no such option; names the nearest known one
    │   ├── InvalidOption         known option, impossible value
    │   ├── OptionConflict        two settings that exclude one another
    │   ├── ConfigFileError       the file of options cannot be read
    │   └── EngineMissing         the engine's command is not installed
    ├── PoolError                 one pool, named by its path
    │   ├── PoolMissing           no region at the path
    │   ├── PoolFolderMissing     no folder to make it in
    │   ├── PoolExists            a region is there already
    │   ├── PoolFull              the folder has too little memory for the region
    │   ├── PoolOverMemoryLimit   the control group's memory limit does
    │   ├── PoolVersionMismatch   the region has another format version
    │   ├── PoolDamaged           the region's superblock cannot be trusted
    │   ├── PoolPermission        the region may not be opened
    │   ├── PoolUnusable          it is sound, but not for this use
    │   ├── PoolGeometryMismatch  an engine's records do not fit the extents
    │   ├── PoolBusy              processes are attached
    │   ├── PoolLockTimeout       another process held the allocation lock too long
    │   └── PoolDetached          this process closed the pool, or was fenced out
    ├── IdentityError             which bytes are these?
    │   ├── IdentityUnknown       the weights or the adapter cannot be named for certain
    │   └── TokenRangeError       a token id that the chain cannot encode
    ├── TenancyError              who may hold what
    │   ├── UnknownPolicy         no eviction policy of this name
    │   └── SharesConflict        shares that cannot all be kept
    ├── CopyError                 moving blocks to and from an accelerator
    │   ├── PinningRefused        the driver does not pin a range of host memory
    │   └── CopyStalled           the accelerator did not finish a copy in time
    ├── AgentError                the agent of a pool
    │   ├── AgentBusy             its loop did not come to an order in time
    │   └── AgentUnreachable      its port does not answer
    └── SimulationError           what `kvext simulate` is to replay
        ├── TraceError            a trace, named by file and line
        ├── ScenarioError         a scenario, named by file and line
        └── CapacityError         more blocks than there are to keep

Every message states the fact, the value and the remedy. Errors compare by identity and
survive pickling, since engines hand them between processes.
"""

from kvext.errors.agent import AgentBusy, AgentError, AgentUnreachable
from kvext.errors.base import KvextError
from kvext.errors.config import (
    ConfigError,
    ConfigFileError,
    EngineMissing,
    InvalidOption,
    OptionConflict,
    UnknownOption,
)
from kvext.errors.copy import CopyError, CopyStalled, PinningRefused
from kvext.errors.identity import IdentityError, IdentityUnknown, TokenRangeError
from kvext.errors.pool import (
    PoolBusy,
    PoolDamaged,
    PoolDetached,
    PoolError,
    PoolExists,
    PoolFolderMissing,
    PoolFull,
    PoolGeometryMismatch,
    PoolLockTimeout,
    PoolMissing,
    PoolOverMemoryLimit,
    PoolPermission,
    PoolUnusable,
    PoolVersionMismatch,
)
from kvext.errors.simulation import CapacityError, ScenarioError, SimulationError, TraceError
from kvext.errors.tenancy import SharesConflict, TenancyError, UnknownPolicy

__all__ = [
    "AgentBusy",
    "AgentError",
    "AgentUnreachable",
    "CapacityError",
    "ConfigError",
    "ConfigFileError",
    "CopyError",
    "CopyStalled",
    "EngineMissing",
    "IdentityError",
    "IdentityUnknown",
    "InvalidOption",
    "KvextError",
    "OptionConflict",
    "PinningRefused",
    "PoolBusy",
    "PoolDamaged",
    "PoolDetached",
    "PoolError",
    "PoolExists",
    "PoolFolderMissing",
    "PoolFull",
    "PoolGeometryMismatch",
    "PoolLockTimeout",
    "PoolMissing",
    "PoolOverMemoryLimit",
    "PoolPermission",
    "PoolUnusable",
    "PoolVersionMismatch",
    "ScenarioError",
    "SharesConflict",
    "SimulationError",
    "TenancyError",
    "TokenRangeError",
    "TraceError",
    "UnknownOption",
    "UnknownPolicy",
]
