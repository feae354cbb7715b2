"""Judgements: each check is a pure function from a snapshot to one finding."""
