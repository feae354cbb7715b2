from tests.pool.conftest import pool, region

__all__ = ["pool", "region"]
