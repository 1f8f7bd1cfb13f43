"""Documents within rows: starts, positions, masks and packed lengths, against plain.py."""

import os
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.utils.data import DataLoader

from nanoset_ref import plain
from nanoset_ref.load import DataCollatorForCLMWithPositionIds
from nanoset_ref.load.collator import DataCollatorForCLM, TensorPointer
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.document_masks import (
    DocumentOptions,
    attention_mask,
    cu_seqlens,
    loss_mask,
    position_ids,
    starts_after_eos,
    starts_at_boundaries,
)
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import (
    MegatronCollator,
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.tokens import TokenFileWriter, convert, open_tokens

EOS = 9
ROWS = np.array(
    [[1, 2, EOS, 3, 4], [EOS, EOS, 5, 6, EOS], [1, 1, 1, 1, 1]], dtype=np.int32
)
EXAMPLES = settings(max_examples=50, deadline=None)


DTYPES, SHAPES = (
    st.sampled_from([np.int32, np.int64, np.uint16]),
    st.tuples(st.integers(1, 4), st.integers(1, 20)),
)


@EXAMPLES
@given(rows=arrays(DTYPES, SHAPES, elements=st.sampled_from([1, 2, EOS])))
def test_every_field_follows_from_the_tokens(rows):
    starts = starts_after_eos(rows, EOS)
    assert starts.tolist() == [
        plain.starts_after_eos(row, EOS).tolist() for row in rows
    ]
    expected = [plain.document_fields(row) for row in starts]
    assert position_ids(starts).tolist() == [
        fields["position_ids"].tolist() for fields in expected
    ]
    assert loss_mask(starts).tolist() == [
        fields["label_mask"].tolist() for fields in expected
    ]
    assert attention_mask(starts)[:, 0].tolist() == [
        fields["attention_mask"].tolist() for fields in expected
    ]
    edges, longest = cu_seqlens(starts)
    lengths = np.concatenate([np.diff(fields["cu_seqlens"]) for fields in expected])
    assert edges.dtype == np.int32
    assert (edges.tolist(), longest) == ([0, *np.cumsum(lengths)], lengths.max())


@EXAMPLES
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    width=st.integers(1, 9),
    data=st.data(),
)
def test_boundaries_show_where_documents_begin(lengths, width, data):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    assume(offsets[-1] >= width)
    begins = data.draw(
        st.lists(st.integers(0, int(offsets[-1]) - width), min_size=1, max_size=4)
    )
    found = starts_at_boundaries(offsets, np.array(begins), width)
    for row, begin in zip(found.tolist(), begins, strict=True):
        assert row == [
            column == 0 or begin + column in offsets for column in range(width)
        ]


def test_damaged_boundaries_are_refused():
    with pytest.raises(
        ValueError, match="boundaries do not ascend: their file is damaged"
    ):
        starts_at_boundaries(np.array([0, 9, 1, 10]), np.array([0]), 5)


# ---- in Megatron's collator


def batch_of(rows, **flags):
    config = NanosetConfig(
        random_seed=0,
        sequence_length=rows.shape[1] - 1,
        data_path="c",
        split="1",
        eos_token_id=EOS,
        **flags,
    )
    return MegatronCollator(config)([{"input_ids": row} for row in rows])


def test_each_flag_does_its_part():
    """Fields without flags, values and dtypes are held by the golden cases."""
    batch = batch_of(
        ROWS, reset_position_ids=True, eod_mask_loss=True, create_cu_seqlens=True
    )
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0], [0, 0, 0, 1], [0, 1, 2, 3]]
    assert batch["loss_mask"].tolist() == [[1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert batch["cu_seqlens"].tolist() == [0, 3, 4, 5, 6, 8, 12]
    assert batch["max_seqlen"] == 4
    for flag in (True, False):
        mask = batch_of(ROWS, create_attention_mask=True, reset_attention_mask=flag)[
            "attention_mask"
        ]
        assert (
            bool(mask[0, 0, 3, 0]) is flag
        )  # the first token lies in another document than the fourth


def test_a_mask_within_documents_is_delivered_or_refused():
    """Upstream creates masks by default, and then this flag does its part alone."""
    with pytest.raises(
        ValueError, match="reset_attention_mask .* create_attention_mask delivers"
    ):
        batch_of(ROWS, reset_attention_mask=True)
    batch = batch_of(ROWS, reset_attention_mask=True, create_cu_seqlens=True)
    assert batch["cu_seqlens"].tolist() == [0, 3, 4, 5, 6, 8, 12]


@pytest.mark.parametrize("value", ["no", 1, None])
@pytest.mark.parametrize(
    ("flag", "make"),
    [
        ("reset_position_ids", DocumentOptions),
        ("create_cu_seqlens", DocumentOptions),
        (
            "use_doc_masking",
            partial(DataCollatorForCLMWithPositionIds, 4, 0, 0, 0),
        ),
    ],
)
def test_a_flag_is_true_or_false(flag, make, value):
    with pytest.raises(ValueError, match=f"{flag}: should be True or False, got"):
        make(**{flag: value})


# ---- in our own collator

EVERYTHING = dict.fromkeys(
    [
        "reset_position_ids",
        "reset_attention_mask",
        "eod_mask_loss",
        "create_cu_seqlens",
    ],
    True,
)


def collated(rank, **options):
    """ROWS on one rank of a pipeline of three, whose first has the inputs and whose last the labels."""
    collator = DataCollatorForCLM(4, 0, 2, rank, documents=DocumentOptions(**options))
    return collator([{"input_ids": row} for row in ROWS] if rank != 1 else [{}, {}, {}])


def test_fields_about_documents_go_where_they_are_needed():
    inputs, between, labels = (
        collated(rank, eos_token_id=EOS, **EVERYTHING) for rank in range(3)
    )
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 0], [0, 0, 0, 1], [0, 1, 2, 3]]
    assert labels["position_ids"] == TensorPointer(0)
    assert inputs["label_mask"] == TensorPointer(2)
    assert (
        labels["label_mask"].tolist() == loss_mask(starts_after_eos(ROWS, EOS)).tolist()
    )
    for batch in (inputs, labels):
        assert batch["cu_seqlens"].tolist() == [0, 3, 4, 5, 6, 8, 12]
        assert batch["max_seqlen"] == 4
        assert (
            batch["attention_mask"].tolist()
            == attention_mask(starts_after_eos(ROWS[:, :-1], EOS)).tolist()
        )
    assert between == {
        name: TensorPointer(2 if "label" in name else 0) for name in inputs
    }


def test_fields_not_asked_for_are_not_there():
    batch = DataCollatorForCLM(4, 0, 0, 0)([{"input_ids": row} for row in ROWS])
    assert list(batch) == ["input_ids", "input_mask", "label_ids", "label_mask"]
    assert list(collated(0, eos_token_id=EOS, reset_position_ids=True)) == [
        *batch,
        "position_ids",
    ]
    assert (
        DocumentOptions(**EVERYTHING).field_names
        == "position_ids attention_mask label_mask cu_seqlens max_seqlen".split()
    )


def test_somebody_must_say_where_documents_begin():
    with pytest.raises(
        ValueError,
        match="give eos_token_id, or read from a Nanoset whose files have manifests",
    ):
        collated(0, reset_position_ids=True)


def test_the_manifest_knows_boundaries_that_no_token_shows(tmp_path):
    paths = [tmp_path / "a_input_ids.npy", tmp_path / "b_input_ids.npy"]
    for path, lengths in zip(paths, ([3, 1, 5, 0, 2, 6], [4, 4, 9]), strict=True):
        with TokenFileWriter(path, dtype=np.uint16) as writer:
            writer.write(np.full(sum(lengths), 7), lengths)
    plain = Nanoset(paths, None, 4, 12)
    collator = DataCollatorForCLM(
        4,
        0,
        0,
        0,
        documents=DocumentOptions(reset_position_ids=True, eod_mask_loss=True),
    )
    loader = DataLoader(plain, batch_size=4, collate_fn=collator)
    boundaries = [{0, 3, 4, 9, 11}, {0, 4, 8}]
    for number, batch in enumerate(loader):
        files, samples = plain.order[np.arange(4 * number, 4 * number + 4)]
        for row, (file, sample) in enumerate(
            zip(files.tolist(), samples.tolist(), strict=True)
        ):
            begins = [
                column == 0 or 4 * sample + column in boundaries[file]
                for column in range(5)
            ]
            assert batch["label_mask"][row].tolist() == [
                not begin for begin in begins[1:]
            ]
            assert (
                batch["position_ids"][row].tolist()
                == position_ids(np.array([begins[:4]]))[0].tolist()
            )


@pytest.mark.parametrize("options", [{}, {"eod_mask_loss": True}, True])
@pytest.mark.parametrize("windows", ["overlapping", "padded"])
def test_document_options_are_of_their_class(tmp_path, options, windows):
    row_length = None if windows == "overlapping" else 5
    with TokenFileWriter(
        tmp_path / "a.npy", dtype="uint16", windows=windows, row_length=row_length
    ) as writer:
        writer.write_document(np.arange(10))
    rows = Nanoset(tmp_path / "a.npy", None, 4)
    with pytest.raises(TypeError, match="documents must be DocumentOptions, such as"):
        build_nanoset_dataloader(rows, micro_batch_size=1, documents=options)


@pytest.mark.parametrize("options", [{"eod_mask_loss": True}, True])
@pytest.mark.parametrize(
    "collator", [DataCollatorForCLM, DataCollatorForCLMWithPositionIds]
)
def test_document_options_of_a_collator_are_of_their_class(collator, options):
    with pytest.raises(TypeError, match="documents must be DocumentOptions, such as"):
        collator(4, 0, 0, 0, documents=options)


def test_without_a_manifest_there_is_a_clear_error(tmp_path):
    np.arange(40, dtype=np.uint16).tofile(tmp_path / "raw.npy")
    with pytest.raises(ValueError, match="raw.npy records no document boundaries"):
        nanoset = Nanoset([tmp_path / "raw.npy"], None, 4, 4)
        build_nanoset_dataloader(
            nanoset, micro_batch_size=1, documents=DocumentOptions(eod_mask_loss=True)
        )


@pytest.mark.parametrize("blended", [False, True])
def test_sequences_of_an_indexed_corpus_are_its_documents(tmp_path, blended):
    prefixes = []
    for name, lengths in (("a", [3, 1, 5, 2, 6]), ("b", [4, 0, 4, 9])):
        with MMapIndexedDatasetBuilder(tmp_path / f"{name}.bin", np.uint16) as builder:
            builder.write(np.full(sum(lengths), 7), lengths)
        prefixes.append(str(tmp_path / name))
    path = dict.fromkeys(prefixes, 1.0) if blended else prefixes[0]
    options = {"data_path": path, "split": "1,0,0", "split_num_samples": (9, 0, 0)}
    config = NanosetConfig(random_seed=3, sequence_length=4, **options)
    dataset = NanosetBuilder(config).build()[0]
    assert dataset is not None
    block = dataset.__getitems__(range(len(dataset)))
    for k in range(len(dataset)):
        spans = dataset.spans(k)
        edges = np.cumsum([0] + [span.stop - span.start for span in spans])[:-1]
        assert np.flatnonzero(block.starts[k]).tolist() == edges.tolist()
        assert block[k]["input_ids"].tolist() == [7] * 5


@pytest.mark.parametrize("eos_token_id", ["</s>", [2], -1, 2.0, True])
def test_an_id_that_no_token_has_ends_no_document(tmp_path, eos_token_id):
    """A tokenizer's eos_token, or the list of a generation config: no id, so no mask at all."""
    said = "eos_token_id must be .*at least 0, got "
    with pytest.raises(ValueError, match=said):
        DocumentOptions(eos_token_id=eos_token_id, eod_mask_loss=True)
    np.arange(20, dtype="<u2").tofile(tmp_path / "a.npy")
    file = open_tokens(tmp_path / "a.npy", eos_token_id=eos_token_id)
    with pytest.raises(ValueError, match=said):
        file.require_document_offsets()


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_boundaries_of_many_files_keep_no_descriptor_each(tmp_path, suffix):
    """1,200 files and the usual limit of 1,024: the rows could be read, the masks could not."""
    paths = [tmp_path / f"{number}{suffix}" for number in range(80)]
    for path in paths:
        with TokenFileWriter(
            tmp_path / "a.npy", dtype=np.uint16, eos_token_id=0, overwrite=True
        ) as file:
            for _ in range(3):
                file.write_document([1, 2, 3, 0])
        convert([open_tokens(tmp_path / "a.npy")], path)
    files = [open_tokens(path) for path in paths]
    before = len(os.listdir("/dev/fd"))
    assert [file.document_offsets.tolist() for file in files] == [[0, 4, 8, 12]] * 80
    assert len(os.listdir("/dev/fd")) < before + 40
