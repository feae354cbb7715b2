"""The agent's own port: what it does, for people and for Prometheus, and what it shall do now.

Reading is open to whoever reaches the port; changing needs the admin's token.
"""

__all__: list[str] = []
