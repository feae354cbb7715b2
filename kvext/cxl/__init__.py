"""Where a pool's memory comes from. So far: shared memory (`shm`), or a file in any folder."""

from kvext.cxl.cgroup import limit_on
from kvext.cxl.shm import (
    REGION_FORMAT,
    create_region,
    find_regions,
    region_name,
    region_path,
    remove_region,
)

__all__ = [
    "REGION_FORMAT",
    "create_region",
    "find_regions",
    "limit_on",
    "region_name",
    "region_path",
    "remove_region",
]
