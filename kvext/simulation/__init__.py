"""Replays of traces against eviction policies: decide with evidence, size before you buy.

Nothing here knows an engine; `kvext simulate` is its command.
"""
