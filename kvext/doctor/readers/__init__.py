"""Measurements: each reader fills one snapshot from the running host and judges nothing.

What cannot be read stays empty: a check of something else must not fail for it.
"""
