"""vLLM's side of kvext: every file here only translates between vLLM and `kvext.connector`."""

__all__: list[str] = []
