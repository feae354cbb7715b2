"""Public test doubles and tiny models: what kvext's own tests use, others may use as well."""

from kvext.testing.models import tiny_llama, tiny_lora

__all__ = ["tiny_llama", "tiny_lora"]
