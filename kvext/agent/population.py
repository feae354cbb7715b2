"""Makes the pool if it is missing, so that its memory is charged to the agent and not an engine.

Pages of shared memory count in the memory limit (control group) of the process that touches them
first, and creation touches all of them.
"""

from collections.abc import Callable

from kvext.assembly import automatic_pool_bytes, create_pool, pool_path
from kvext.config import Config
from kvext.errors import PoolExists, PoolFolderMissing

__all__ = ["populate"]

Progress = Callable[[int, int], None]


def populate(config: Config, on_progress: Progress | None = None) -> int:
    """Create the configured pool unless it exists.

    Args:
        config: Names the pool and its size.
        on_progress: Told bytes reserved so far and bytes in all.

    Returns:
        Bytes of the region that was made; 0 if there was one, or another process made it.

    Raises:
        PoolFolderMissing: There is no folder to make it in.
        PoolFull: The folder has too little memory.
        PoolPermission: The folder may not be written.
    """
    path = pool_path(config)
    if path.exists():
        return 0
    if not path.parent.is_dir():
        raise PoolFolderMissing(str(path))
    num_bytes = config.pool_bytes or automatic_pool_bytes(path.parent)
    try:
        create_pool(path.parent, config.pool_name, num_bytes, on_progress=on_progress)
    except PoolExists:
        return 0
    return num_bytes
