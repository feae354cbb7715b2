"""What the agent's port can say stands on its page."""

import re
from pathlib import Path

from kvext.agent.admin.metrics import METRICS
from kvext.agent.admin.orders import ORDERS

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs" / "agent.md").read_text()


def test_every_metric_is_on_the_page_and_no_other() -> None:
    assert set(re.findall(r"`(kvext_(?:agent|pool)_\w+)`", _PAGE)) == set(METRICS)


def test_every_order_is_on_the_page() -> None:
    assert set(re.findall(r"`POST (/\w+)`", _PAGE)) == set(ORDERS)


def test_every_step_that_can_fail_is_on_the_page() -> None:
    code = "".join(path.read_text() for path in (_ROOT / "kvext" / "agent").rglob("*.py"))
    steps = set(re.findall(r'attempt\("(\w+)"', code)) | {"loop"}
    rows = re.findall(
        r"^\| (`[^|]*) \|", _PAGE.partition("## When it is unhealthy")[2], re.MULTILINE
    )
    assert steps == set(re.findall(r"`(\w+)`", " ".join(rows[: rows.index("`loop`") + 1])))
