"""kvext: the KV cache of LLM serving as shared infrastructure that outlives engines.

Importing this package loads neither torch nor an engine; ask for what you need by its
module, for example `from kvext.pool import Pool`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
