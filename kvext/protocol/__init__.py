"""The vocabulary that every part of kvext shares: keys, layouts, digests, outcomes, tiers.

Only the standard library and msgspec are imported here, so that any process, engine or
tool can speak it.
"""

__all__: list[str] = []
