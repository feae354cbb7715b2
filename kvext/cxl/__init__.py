"""Where a pool's memory comes from. So far: shared memory (`shm`), or a file in any folder."""

from kvext.cxl.cgroup import limit_on
from kvext.cxl.shm import create_region, region_path, remove_region

__all__ = ["create_region", "limit_on", "region_path", "remove_region"]
