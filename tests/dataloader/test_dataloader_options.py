"""Options, datasets and samplers that a loader cannot have are refused in its own words."""

import pytest
from token_files import write_range
from torch.utils.data import BatchSampler, Subset

from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"read_ahead": -1}, "read_ahead must be at least 0, got -1"),
        ({"in_order": False}, "in_order must be True"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(numbered, options, message):
    with pytest.raises(ValueError, match=message):
        build_nanoset_dataloader(
            numbered[0], micro_batch_size=8, num_loading_workers=2, **options
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": "x"}, "^seed must be an integer, got 'x'$"),
        ({"seed": 2**64}, "^seed must lie in "),
        (
            {"shuffle": True},
            "^shuffle cannot be set: .*; use order, micro_batch_",
        ),
        (
            {"batch_size": 4},
            "^build_nanoset_dataloader: batch_size: use micro_batch_size$",
        ),
        ({"num_workers": 4}, "num_workers: use num_loading_workers$"),
        ({"read_ahead": "2"}, "read_ahead must be an integer of at least 0, got '2'"),
        ({"drop_last": True}, "drop_last cannot be set: .*; use"),
        (
            {"prefetch_facto": 2},
            "^build_nanoset_dataloader: prefetch_facto: unknown key, did you mean 'prefetch_factor'.$",
        ),
        (
            {"tial": "pad"},
            "^build_nanoset_dataloader: tial: unknown key, did you mean 'tail'.$",
        ),
        (
            {"options": {}},
            "^build_nanoset_dataloader: options: unknown key$",
        ),
        *(
            ({typo: 2}, f"^build_nanoset_dataloader: {typo}: unknown key")
            for typo in ("shuffel", "smpler", "batch_sampel", "drop_lst", "num_worker")
        ),
    ],
)
def test_an_option_that_a_loader_cannot_have_is_refused_in_its_own_words(
    tmp_path, options, message
):
    dataset = Nanoset(write_range(tmp_path / "a.npy", 41), None, 4, 10)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        build_nanoset_dataloader(dataset, micro_batch_size=2, **options)
    for refused in ("shuffle", "sampler", "drop_last", "num_workers", "batch_sampler"):
        assert f"did you mean {refused!r}" not in str(caught.value)


def test_fewer_samples_than_a_global_batch_are_refused(numbered):
    with pytest.raises(
        ValueError,
        match="121 samples do not fill one batch of 128 .dp_size=16 x micro_batch_size=8",
    ):
        build_nanoset_dataloader(numbered[0], micro_batch_size=8, dp_size=16)


def test_other_objects_than_datasets_and_samplers_are_refused(numbered):
    rows, _ = numbered
    some = Subset(rows, range(4))
    with pytest.raises(TypeError, match="dataset must be Rows .*, got <torch.*Subset"):
        build_nanoset_dataloader(some, micro_batch_size=2)
    with pytest.raises(TypeError, match="must be a ResumableBatchSampler, got <torch"):
        NanosetDataLoader(rows, BatchSampler(range(4), 2, drop_last=True))


def test_a_sampler_of_another_length_is_refused(numbered):
    """It would ask for rows that are not there, or leave rows out."""
    for wrong in (120, 122):
        with pytest.raises(
            ValueError, match=f"has 121 samples, but its batch_sampler counts {wrong}"
        ):
            NanosetDataLoader(numbered[0], ResumableBatchSampler(wrong, 2))
