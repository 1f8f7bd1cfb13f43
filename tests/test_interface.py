"""What users hold in their hands stays: the names of each package, the commands and their options.

interface.json lists them. Something new is added to it; whatever is in it goes only with a new major version, and
CHANGELOG says so.
"""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from nanoset_ref.cli import main

INTERFACE = json.loads(
    (Path(__file__).parent / "interface.json").read_text(encoding="utf-8")
)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*", re.IGNORECASE)


@pytest.mark.parametrize("package", INTERFACE["names"])
def test_a_package_offers_every_name_that_it_has_offered(package: str) -> None:
    module = import_module(package)
    listed = INTERFACE["names"][package]
    assert [name for name in listed if not hasattr(module, name)] == []
    assert sorted(module.__all__) == listed


@pytest.mark.parametrize("command", INTERFACE["options"])
def test_a_command_has_every_option_that_it_has_had(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    found = {*OPTION.findall(capsys.readouterr().out)} - {"--help"}
    assert sorted(found) == INTERFACE["options"][command]
