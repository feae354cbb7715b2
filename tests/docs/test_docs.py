"""The documentation says nothing that the code does not know, and leaves nothing out."""

import ast
import re
from pathlib import Path

import click
import pytest
import reference_text
from click.testing import CliRunner

from kvext import errors
from kvext.cli import kvext
from kvext.config import describe_options, load_config
from kvext.cxl import create_region, region_path
from kvext.pool import Pool
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.docs.pages import DOCS, ROOT, calls_of_kvext, code_blocks, links, pages, table

_MONITORING = DOCS / "monitoring.md"
_CODE = [*(ROOT / "kvext").rglob("*.py")]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_option_is_described_with_its_default() -> None:
    text = reference_text.options_text()
    assert "```{kvext-options}" in (DOCS / "configuration.md").read_text()
    for option in describe_options():
        assert f"## `{option.name}`" in text
        assert option.description in text


def test_every_command_is_described_with_each_of_its_options() -> None:
    text = reference_text.commands_text()
    assert "```{kvext-commands}" in (DOCS / "command-line.md").read_text()
    for name, command in reference_text.walk_commands():
        if isinstance(command, click.Group):
            continue
        section = text.split(f"## `{name}`\n", 1)[1].split("\n## ", 1)[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(flag in section for flag in parameter.opts)


def test_every_error_is_described() -> None:
    text = reference_text.errors_text()
    assert "```{kvext-errors}" in (DOCS / "errors.md").read_text()
    assert all(name in text for name in errors.__all__)


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT), target
        if anchor and found.suffix == ".md":
            assert anchor in _anchors(found), target


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_calls_of_kvext_are_commands_with_options_that_exist(page: Path) -> None:
    for words in calls_of_kvext(page):
        _check_call(words)


def _check_call(words: tuple[str, ...]) -> None:
    command: click.Command = kvext
    rest = list(words)
    while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"no command: kvext {' '.join(words)}"
        command = command.commands[rest.pop(0)]
    if command.context_settings.get("ignore_unknown_options"):
        return  # what it does not know is vLLM's
    known = {flag for part in command.params for flag in (*part.opts, *part.secondary_opts)}
    flags = {word.split("=", 1)[0] for word in rest if word.startswith("-")}
    assert flags <= known | {"--help", "-h"}, f"no such option: kvext {' '.join(words)}"


def test_calls_of_serve_are_taken_and_their_options_are_known() -> None:
    calls = {words for page in pages() for words in calls_of_kvext(page) if words[0] == "serve"}
    typed = [words[1:] for words in calls if len(words) > 2 and "..." not in words]
    assert typed
    for words in typed:
        if any(word in ("--help", "--kvext-config") for word in words):
            continue
        result = CliRunner().invoke(kvext, ["serve", *words, "--dry-run"])
        assert result.exit_code == 0, (words, result.output)
        assert "--pool" not in result.output.split(" --kv-transfer-config ")[0], words


def test_options_files_shown_are_accepted(tmp_path: Path) -> None:
    shown = [block for page in pages() for block in code_blocks(page) if block.language == "toml"]
    assert shown
    for block in shown:
        file = tmp_path / "kvext.toml"
        file.write_text(block.text)
        load_config({"config": str(file)})


def test_every_counter_of_a_pool_has_its_meaning(tmp_path: Path) -> None:
    path = region_path(tmp_path, "counters")
    create_region(path, 1 << 20, Pool.initialise)
    with Pool.attach(path) as pool:
        counters = set(pool.stat().counters)
    assert table(_MONITORING, "The pool's counters") == counters


def test_every_metric_of_an_engine_has_its_meaning() -> None:
    tree = ast.parse((ROOT / "kvext" / "vllm" / "stats.py").read_text())
    figures = {
        f"kvext:{key.value!s}"
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and isinstance(statement.value, ast.Dict)
        for key in statement.value.keys
        if isinstance(key, ast.Constant)
    }
    assert table(_MONITORING, "An engine's metrics") == figures


def test_every_reason_has_its_meaning() -> None:
    code = "\n".join(path.read_text() for path in _CODE)
    rejections = table(_MONITORING, "Reasons of rejected stores")
    failures = table(_MONITORING, "Reasons of failed loads")
    misses = table(_MONITORING, "A response")
    given = {name.lower() for name in re.findall(r"MissReason\.([A-Z_]+)\b", code)}
    assert {outcome.name.lower() for outcome in StoreOutcome if outcome.is_rejected} <= rejections
    assert {outcome.name.lower() for outcome in LoadOutcome if outcome} <= failures
    assert given <= misses
