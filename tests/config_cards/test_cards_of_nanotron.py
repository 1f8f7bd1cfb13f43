"""Cards from configs of Nanotron: its main branch and the Nanosets of 2024."""

import numpy as np
import pytest
from loader_configs import NANOTRON, card
from token_files import write_range

from nanoset_ref import Nanoset
from nanoset_ref.orders.others import nanotron_stages


def test_nanotron_main_reads_the_rows_of_its_stages(tmp_path):
    for name, rows in (("a/0", 7), ("a/1", 9), ("b/0", 30)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.arange(rows * 9 + 4, dtype=np.uint16).tofile(tmp_path / f"{name}.ds")
    found = card(tmp_path, "nanotron", NANOTRON.format(folder=tmp_path))
    folders = {f"{tmp_path}/a": [7, 9], f"{tmp_path}/b/": [30]}
    stages = []
    for start, names in ((1, [*folders]), (5, [*folders][::-1])):
        dataset = {
            "dataset_folder": names,
            "dataset_weights": [0.3, 0.7] if start == 1 else None,
        }
        stages.append(
            {"name": "x", "start_training_step": start, "data": {"dataset": dataset}}
        )
    tokens = {
        "micro_batch_size": 1,
        "batch_accumulation_per_replica": 2,
        "train_steps": 9,
    }
    config = {"tokens": tokens, "parallelism": {"dp": 2}, "data_stages": stages}
    first, second = nanotron_stages(config, folders)
    assert [stage["name"] for stage in found.facts["stages"]] == ["stable", "decay"]
    rows = found.where(3)
    names = [str(tmp_path / name) for name in ("a/0.ds", "a/1.ds", "b/0.ds")]
    assert [(row.path, row.sample) for row in rows] == [
        (names[file], sample) for file, sample in map(first.__getitem__, range(8, 12))
    ]
    rotated = [names[2], *names[:2]]
    assert [(row.path, row.sample) for row in found.where(5)] == [
        (rotated[file], sample) for file, sample in map(second.__getitem__, range(4))
    ]
    assert [(row.dp_rank, row.micro_batch) for row in rows] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
    ]
    assert found.facts["orders"][1]["probes"], "all sizes are known"


def test_a_stage_of_nanotron_main_that_the_run_does_not_reach_is_left_out(tmp_path):
    (tmp_path / "a").mkdir()
    np.arange(900, dtype=np.uint16).tofile(tmp_path / "a/0.ds")
    (tmp_path / "b").mkdir()
    np.arange(900, dtype=np.uint16).tofile(tmp_path / "b/0.ds")
    text = NANOTRON.replace("start_training_step: 5", "start_training_step: 50")
    assert text != NANOTRON
    found = card(tmp_path, "nanotron", text.format(folder=tmp_path))
    assert [(it["name"], it["steps"]) for it in found.stages] == [("stable", 9)]
    assert len(found.where(9)) == 4


def test_a_folder_that_is_not_here_makes_no_order_but_all_else(tmp_path):
    found = card(tmp_path, "nanotron", NANOTRON.format(folder="s3://bucket"))
    assert [it["name"] for it in found.sources] == ["s3://bucket/a", "s3://bucket/b/"]
    assert {it["name"] for it in found.facts["orders"]} == {"unknown"}
    assert [it["steps"] for it in found.facts["stages"]] == [4, 5]
    with pytest.raises(ValueError, match="nobody has published enough"):
        found.where(1)
    shuffled = NANOTRON.replace(
        "dataset_weights", "shuffle_files: true\n      dataset_weights"
    )
    with pytest.raises(ValueError, match="shuffle_files is not supported"):
        card(tmp_path, "nanotron", shuffled.format(folder="s3://bucket"))


def test_the_nanosets_of_2024(tmp_path):
    paths = [write_range(tmp_path / "a.npy", 100), write_range(tmp_path / "b.npy", 60)]
    text = f"""
data_stages:
- name: only
  start_training_step: 1
  data:
    dataset: {{dataset_path: {{{paths[0]}: 0.2, {paths[1]}: 0.8}}}}
    seed: 9
parallelism: {{dp: 2}}
tokens: {{sequence_length: 4, train_steps: 5, micro_batch_size: 3, batch_accumulation_per_replica: 1}}
"""
    with pytest.raises(
        ValueError, match=r"lacks dtype \(of the ids.*--given dtype=\.\.\."
    ):
        card(tmp_path, "nanotron-2024", text)
    found = card(tmp_path, "nanotron-2024", text, dtype="uint16")
    late = """- name: not reached
  start_training_step: 100
  data: {dataset: {dataset_path: late.npy}}
parallelism"""
    reached = card(
        tmp_path, "nanotron-2024", text.replace("parallelism", late), dtype="uint16"
    )
    assert reached.facts == found.facts
    rows = Nanoset(paths, [0.2, 0.8], 4, 30, 9)
    for step in range(1, 6):
        read = [(row.source, row.sample) for row in found.where(step)]
        assert read == [rows.order[k] for k in range(6 * step - 6, 6 * step)]
