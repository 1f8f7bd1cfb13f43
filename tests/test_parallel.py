"""Ranks as plain numbers: from any mesh, without a word between processes, and what follows for the data."""

import json

import numpy as np
import pytest
from ranks import Ranks
from ranks.tasks import build_while_one_dies, write_layouts
from token_files import write_range

from nanoset_ref import plain
from nanoset_ref.load.collator import TensorPointer
from nanoset_ref.load.dataloader import EmptyInfiniteDataset, build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.train import ParallelLayout, layout_of_rank, start_world


@pytest.mark.parametrize(
    "names", [("dp", "pp", "tp"), ("pp", "dp", "tp"), ("tp", "dp"), ("pp",), ()]
)
def test_layout_of_rank_counts_as_a_mesh_does(names):
    sizes = dict(zip(names, (2, 3, 4), strict=False))
    mesh = np.arange(int(np.prod(list(sizes.values()), dtype=int))).reshape(
        tuple(sizes.values())
    )
    for rank in mesh.ravel():
        place = dict(zip(names, np.argwhere(mesh == rank)[0], strict=True))
        layout = layout_of_rank(int(rank), sizes)
        for name in ("dp", "pp", "tp"):
            assert getattr(layout, f"{name}_rank") == place.get(name, 0)
            assert getattr(layout, f"{name}_size") == sizes.get(name, 1)


def test_wrong_layouts_are_refused():
    with pytest.raises(ValueError, match="index 4 is out of bounds"):
        layout_of_rank(4, {"dp": 4})
    with pytest.raises(ValueError, match=r"must be named .*'data'"):
        layout_of_rank(0, {"data": 4})
    with pytest.raises(
        ValueError,
        match=r"needs 4 processes, not 1: start 4 with torchrun",
    ):
        start_world(dp=2, pp=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"dp_rank": 2, "dp_size": 2},
            "dp_rank must be below dp_size, got rank 2 of 2",
        ),
        ({"pp_rank": -1}, "pp_rank must be at least 0, got -1"),
        ({"dp_size": 0}, "dp_size must be at least 1, got 0"),
        ({"tp_size": 2.0}, "tp_size must be an integer of at least 1, got 2.0"),
        (
            {"tp_size": 2, "tp_rank": True},
            "tp_rank must be an integer of at least 0, got True",
        ),
    ],
)
def test_a_rank_is_below_its_size_and_both_are_integers(wrong, message):
    with pytest.raises(ValueError, match=message):
        ParallelLayout(**wrong)
    ParallelLayout(dp_rank=np.int64(1), dp_size=np.int64(2))


def test_a_mesh_in_any_order_gives_the_layout(tmp_path):
    meshes = [
        {"dp": 2, "pp": 2},
        {"pp": 2, "dp": 2},
        {"tp": 4},
        {"tp": 2, "pp": 1, "dp": 2},
    ]
    Ranks(4, write_layouts, (str(tmp_path), meshes), tmp_path / "log").wait()
    for rank in range(4):
        layouts, refusals = json.loads((tmp_path / f"{rank}.json").read_text())
        assert "must be named" in refusals[0] and "('dp', 'ep')" in refusals[1]
        assert layouts == [vars(layout_of_rank(rank, sizes)) for sizes in meshes]


def test_every_rank_builds_the_same_order_even_while_another_dies(tmp_path):
    paths = [
        str(write_range(tmp_path / f"{name}.npy", size))
        for name, size in (("a", 500), ("b", 300))
    ]
    ranks = Ranks(3, build_while_one_dies, (str(tmp_path), paths), tmp_path / "log")
    assert [code for code in ranks.wait_for_codes() if code] == [-9]
    nanoset = Nanoset(paths, None, 8, 100)
    expected = {
        "fingerprint": nanoset.fingerprint,
        "rows": nanoset.read([0, 17, 99]).tolist(),
    }
    assert json.loads((tmp_path / "0.json").read_text()) == expected
    assert json.loads((tmp_path / "2.json").read_text()) == expected


def test_tp_ranks_read_the_same_and_pp_ranks_what_the_collator_says(tmp_path):
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 1000), None, 8, 48)
    for rank in range(12):
        layout = layout_of_rank(rank, {"pp": 3, "dp": 2, "tp": 2})
        loader = build_nanoset_dataloader(
            nanoset,
            micro_batch_size=4,
            dp_rank=layout.dp_rank,
            dp_size=layout.dp_size,
            output_pp_rank=layout.output_pp_rank,
            current_pp_rank=layout.pp_rank,
            num_loading_workers=1 if rank in (0, 4) else 0,
        )
        assert isinstance(loader.dataset, EmptyInfiniteDataset) == (layout.pp_rank == 1)
        batches = list(loader)
        assert len(loader) == 6 and loader.state_dict()["consumed_train_samples"] == 48
        rows = nanoset.read(np.arange(layout.dp_rank, 48, 2)).reshape(6, 4, 9)
        for batch, expected in zip(batches, rows, strict=True):
            for name, value in plain.collate(expected, layout.pp_rank, 0, 2).items():
                found = batch[name]
                assert (
                    found == TensorPointer(value[1])
                    if isinstance(value, tuple)
                    else np.array_equal(found, value)
                )


def test_a_process_that_has_a_group_is_named():
    world = start_world()
    with pytest.raises(ValueError, match="in a process group already: start the run"):
        start_world()
    world.close()
