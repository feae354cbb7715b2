"""Public test doubles and tiny models: what kvext's own tests use, others may use as well."""

from kvext.testing.attention_models import tiny_deepseek, tiny_gemma3, tiny_gpt_oss
from kvext.testing.models import tiny_llama, tiny_lora

__all__ = ["tiny_deepseek", "tiny_gemma3", "tiny_gpt_oss", "tiny_llama", "tiny_lora"]
