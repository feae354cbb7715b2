"""The counters of a served engine, as its `/metrics` page tells them.

A counter is summed over its labels, so a page of several engine cores reads like one.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

__all__ = ["EngineMetrics"]

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Counters at one moment, or their growth between two.

    Attributes:
        samples: Sums by name, as the page writes it (`vllm:prompt_tokens_total`).
    """

    samples: Mapping[str, float]

    @classmethod
    def parse(cls, page: str) -> Self:
        """Read a page in Prometheus' text format."""
        samples: defaultdict[str, float] = defaultdict(float)
        for name, value in _SAMPLE.findall(page):
            samples[name] += float(value)
        return cls(dict(samples))

    def since(self, earlier: "EngineMetrics") -> "EngineMetrics":
        """What was added after `earlier`."""
        return EngineMetrics(
            {name: value - earlier.value(name) for name, value in self.samples.items()}
        )

    def value(self, name: str) -> float:
        """One sample; 0 while the engine has not counted any."""
        return self.samples.get(name, 0.0)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts that were prefilled or found in a cache."""
        return int(self.value("vllm:prompt_tokens_total"))

    @property
    def local_hits(self) -> int:
        """Tokens that the engine's own prefix cache had."""
        return int(self.value("vllm:prefix_cache_hits_total"))

    @property
    def local_queries(self) -> int:
        """Tokens that the engine looked for in its own prefix cache."""
        return int(self.value("vllm:prefix_cache_queries_total"))

    @property
    def external_hits(self) -> int:
        """Tokens that the connector had, as vLLM counts them."""
        return int(self.value("vllm:external_prefix_cache_hits_total"))

    @property
    def external_queries(self) -> int:
        """Tokens that the engine asked the connector for."""
        return int(self.value("vllm:external_prefix_cache_queries_total"))

    @property
    def loaded_bytes(self) -> int:
        """Bytes that kvext's worker copied from the pool into the engine."""
        return int(self.value("kvext:loaded_bytes_total"))

    @property
    def stored_bytes(self) -> int:
        """Bytes that this engine added to the pool."""
        return int(self.value("kvext:stored_bytes_total"))

    @property
    def load_s(self) -> float:
        """Seconds that the worker spent on loads."""
        return self.value("kvext:load_seconds_total")

    @property
    def store_s(self) -> float:
        """Seconds that the worker spent on stores."""
        return self.value("kvext:store_seconds_total")
