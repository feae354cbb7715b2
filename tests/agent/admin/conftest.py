from collections.abc import Iterator
from pathlib import Path

import pytest

from kvext.agent import AgentSettings
from kvext.agent.admin.server import AdminServer
from kvext.agent.attachment import Attachment
from kvext.agent.commands import Commands
from kvext.agent.duties import Duties
from kvext.agent.health import Health
from kvext.agent.view import View
from kvext.config import Config
from kvext.pool import Pool
from tests.agent.clock import FakeClock

TOKEN = "correct horse battery"  # noqa: S105 - of these tests alone


class Port:
    """An open admin port, and what is behind it."""

    def __init__(self, settings: AgentSettings, region: Path) -> None:
        self.clock = FakeClock()
        self.health = Health(self.clock, longest_turn_s=30)
        self.duties = Duties(settings, self.health, self.clock)
        self.attachment = Attachment(region)
        self.commands = Commands(deadline_s=0.2)
        view = View(settings, self.attachment, self.duties, self.health, self.clock)
        self.server = AdminServer(settings, view, self.commands, self.duties)
        self.server.open()

    @property
    def number(self) -> int:
        return int(self.server.address.rpartition(":")[2])


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    token_file = tmp_path / "admin.token"
    token_file.write_text(TOKEN)
    return AgentSettings(config=Config(pool_folder=str(tmp_path)), port=0, token_file=token_file)


@pytest.fixture
def port(settings: AgentSettings, region: Path, pool: Pool) -> Iterator[Port]:
    del pool  # an engine that is attached
    opened = Port(settings, region)
    opened.attachment.renew(opened.server.address)
    yield opened
    opened.server.close()
    opened.attachment.close()
