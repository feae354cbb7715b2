"""Engine-neutral half of an engine's connector: what to load, what to save, what went wrong.

No engine, no tensor library and no pool is imported here. An adapter (`kvext.vllm`)
translates an engine's calls into the few that `Planner` (scheduler process) and `Transfers`
(worker process) have, and carries their plans and reports between the two.
"""

__all__: list[str] = []
