"""The commands of docs/public_runs.md that need no download."""

import re
import subprocess
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs/public_runs.md").read_text()
# how OLMo's config lists its files (allenai/OLMo at 59a53e3f, September 2025)
CONFIG = """
evaluators:
  - data:
      paths:
        - https://olmo-data.org/eval-data/perplexity/v3_small_gptneox20b/c4_en/val/part-0-00000.npy
data:
  pad_direction: right
  paths:
    - https://olmo-data.org/preprocessed/olmo-mix/v1_5/gpt-neox-20b-pii-special/part-000-00000.npy
    - https://olmo-data.org/preprocessed/olmo-mix/v1_5/gpt-neox-20b-pii-special/part-001-00000.npy
"""


def test_the_files_of_a_run_are_listed_from_its_config(tmp_path: Path) -> None:
    (tmp_path / "OLMo-1B.yaml").write_text(CONFIG)
    [listing] = re.findall(r"^grep .*urls\.txt", PAGE, re.MULTILINE)
    [paths] = re.findall(
        r"^set -- --data \$\((sed .*? urls\.txt)\)", PAGE, re.MULTILINE
    )
    found = subprocess.run(
        f"{listing} && {paths}",
        shell=True,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.splitlines() == [
        f"preprocessed/olmo-mix/v1_5/gpt-neox-20b-pii-special/part-00{number}-00000.npy"
        for number in (0, 1)
    ]
