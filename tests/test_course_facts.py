"""What the pages of the course say in words and figures is so."""

import ast
import inspect
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course import (
    tiny_corpus,
)
from course.zig_zag import zig_zag
from nanoset_ref import (
    Encoder,
    Nanoset,
    TokenFile,
    TokenFileWriter,
    build_nanoset_dataloader,
    laws,
    load_tokenizer,
    open_tokens,
    plain,
    prepare_corpus,
)
from nanoset_ref.megatron import (
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    preprocess_corpus,
)
from nanoset_ref.preprocess import preprocess
from nanoset_ref.train import checkpoint

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def stored(benchmark: str) -> dict:
    return json.loads(
        (NOTEBOOKS.parent / f"benchmarks/results/{benchmark}.json").read_text()
    )


def page_text(number: str) -> str:
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


@pytest.mark.parametrize(
    ("right", "other"),
    [
        (' seed epochs resume"', ' epochs resume"'),
        (' seed epochs resume"', ' seed epochs resume refuses"'),
        ('tail="drop",', ""),
        ("rank, world_size, seed)", "rank, world_size)"),
        ("loader.set_epoch(epoch)", ""),
        ("state is not None", "False"),
        ("Shuffled.state_dict,", "lambda loader: {'done': 0},"),
    ],
)
def test_an_adapter_of_notebook_18_that_leaves_something_out_is_not_right(
    right: str, other: str
) -> None:
    from course.pages.page_18 import rule_4

    [loader] = re.findall(
        r"^class Shuffled:\n(?:.+\n|\n(?=    ))*", page_text("18"), re.M
    )
    text = (NOTEBOOKS / "solutions/18_is_your_loader_right.py").read_text()
    solution = text.split("# %% Exercise 4")[1]
    assert solution.count(right) == 1
    variables = {"np": np, "laws": laws}
    exec(loader + solution.replace(right, other), variables)
    assert not rule_4(variables["mine"])


def test_padding_that_has_the_id_of_eos_hides_every_eos_from_a_collator_by_id(
    tmp_path, monkeypatch
) -> None:
    """What notebook 16, section 2, says of transformers' DataCollatorForLanguageModeling."""
    from transformers import DataCollatorForLanguageModeling

    from nanoset_ref import load_tokenizer, prepare_corpus

    monkeypatch.chdir(tmp_path)
    tokenizer = load_tokenizer(prepare_corpus("data").tokenizer)
    tokenizer.pad_token = tokenizer.eos_token
    eos = tokenizer.eos_token_id
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    labels = collator([{"input_ids": [5, 6, eos, 7, eos, eos]}])["labels"]
    assert labels.tolist() == [[5, 6, -100, 7, -100, -100]]


def test_a_mixture_of_hugging_face_datasets_ends_as_notebook_02_says() -> None:
    from datasets import Dataset, interleave_datasets

    from course.pages.page_02 import LENGTHS

    files = [
        Dataset.from_dict({"source": [source] * length})
        for source, length in enumerate(LENGTHS)
    ]

    def mixed(**options: str) -> list[int]:
        mixture = interleave_datasets(
            files, probabilities=[0.8, 0.1, 0.1], seed=7, **options
        )
        return [mixture["source"][:].count(source) for source in range(3)]

    assert LENGTHS == [922, 1364, 1298]
    assert mixed() == [922, 120, 108]  # 1,150 rows
    rows = mixed(stopping_strategy="all_exhausted")
    assert sum(rows) == 13_503
    assert 11 < rows[0] / LENGTHS[0] < 12


def test_best_fit_writes_the_longest_documents_first_as_notebook_16_says(
    tmp_path: Path,
) -> None:
    corpus = prepare_corpus(tmp_path)
    encoder = Encoder(load_tokenizer(corpus.tokenizer), append_eod=True)
    lengths = []
    for path in corpus.domains.values():
        texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
        lengths += encoder.encode_batch(texts)[1].tolist()
    documents = [len(row) for row in plain.best_fit(lengths, 2049)]
    quarter = len(documents) // 4
    assert max(documents[:quarter]) == 1
    assert round(sum(documents[-quarter:]) / quarter) == 24
    # of a document of n tokens, attention compares n (n + 1) / 2 pairs
    pairs = [
        sum((end - begin) * (end - begin + 1) // 2 for _, begin, end in row)
        for row in plain.best_fit(lengths, 2049)
    ]
    assert round(sum(pairs[:quarter]) / sum(pairs[-quarter:])) == 14


def test_notebook_16_calls_the_kernel_for_variable_lengths_as_torch_does() -> None:
    """On a CPU nobody can run it; its arguments are those of the torch that is installed."""
    from torch.nn.attention.varlen import varlen_attn

    block = page_text("16").split("import varlen_attn\n")[1].split("```")[0]
    assigned = ast.parse(block).body[-1]
    assert isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.Call)
    given = [ast.unparse(it) for it in assigned.value.args]
    named = {str(it.arg): ast.unparse(it.value) for it in assigned.value.keywords}
    arguments = inspect.signature(varlen_attn).bind(*given, **named).arguments
    assert arguments == {
        "query": "query",
        "key": "key",
        "value": "value",
        "cu_seq_q": "edges",
        "cu_seq_k": "edges",
        "max_q": "longest",
        "max_k": "longest",
        "window_size": "(-1, 0)",
    }
    assert "(-1, 0) for causal attention" in str(varlen_attn.__doc__)


def test_flex_attention_takes_the_rule_of_notebook_16_and_hides_other_documents() -> (
    None
):
    """What its kernels compute by that rule is attention under the dense mask."""
    from torch.nn.attention.flex_attention import create_block_mask, create_mask

    torch.set_num_threads(1)
    edges = torch.tensor([0, 130, 300, 384])
    document = torch.bucketize(torch.arange(384), edges, right=True)

    def sees(batch, head, query, key):
        return (query >= key) & (document[query] == document[key])

    assert "return (query >= key) & (document[query] == document[key])" in page_text(
        "16"
    )
    dense = create_mask(sees, None, None, 384, 384, device="cpu")[0, 0]
    starts = np.isin(np.arange(384), edges)
    hidden = plain.document_fields(starts)["attention_mask"]
    assert np.array_equal(~dense.numpy(), hidden)
    blocks = create_block_mask(sees, None, None, 384, 384, device="cpu")
    assert (
        round(9 * (1 - blocks.sparsity() / 100)) == 6 - 1
    )  # document 2 sees none of block 0


def test_an_empty_text_is_an_eos_or_nothing_as_notebook_16_says(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(prepare_corpus(tmp_path).tokenizer)
    for append_eod, length in ((True, 1), (False, 0)):
        encoder = Encoder(tokenizer, append_eod=append_eod)
        assert encoder.encode_batch(["", "a"])[1].tolist() == [length, length + 1]
    assert plain.best_fit([5, 0, 4], 9) == [[(0, 0, 5), (2, 0, 4)]]


def test_an_iterator_moves_the_generator_of_torch_and_not_ours_as_notebook_04_says(
    tmp_path: Path,
) -> None:
    rows = Nanoset(tiny_corpus(tmp_path)["stories"], None, 8, 4)
    own = torch.Generator()
    ways = {
        "torch": lambda: iter(DataLoader(rows)),
        "torch, a generator of its own": lambda: iter(DataLoader(rows, generator=own)),
        "ours": lambda: next(iter(build_nanoset_dataloader(rows, micro_batch_size=1))),
    }
    moved = {}
    for name, validate in ways.items():
        before = torch.get_rng_state()
        validate()
        moved[name] = not torch.equal(before, torch.get_rng_state())
    assert moved == {
        "torch": True,
        "torch, a generator of its own": False,
        "ours": False,
    }


def test_maps_and_chunks_are_as_notebook_15_says() -> None:
    from benchmarks.peers import CHUNK
    from course.pages.page_15 import results, served

    memory, peers = results("memory"), results("streamers")
    ends = {way: points[-1] for way, points in memory["ways"].items()}
    speed = {way: end["rows"] / end["cpu_seconds"] for way, end in ends.items()}
    assert memory["read_ahead_kb"] == 32 * 4  # pages of 4 KiB
    assert min(speed, key=lambda way: speed[way]) == "rebuilt"
    kept = speed["a kept map"]
    assert round(speed["a kept map without read-ahead"] / kept) == 6
    assert round(served()["nanotron"] / 2048, -3) == 19_000  # from memory
    assert peers["megabytes"] << 19 == 8 * CHUNK  # litdata's


def test_a_special_token_in_a_text_ends_a_document_as_notebook_03_says(
    tmp_path: Path,
) -> None:
    tokenizer = load_tokenizer(prepare_corpus(tmp_path).tokenizer)
    ids = tokenizer("ends with <|endoftext|> and goes on")["input_ids"]
    assert ids[1:-1].count(tokenizer.eos_token_id) == 1
    split = tokenizer("with <|endoftext|> and", split_special_tokens=True)["input_ids"]
    assert tokenizer.eos_token_id not in split


def test_an_empty_text_is_an_eos_here_and_no_token_in_a_pair_as_notebook_03_says(
    tmp_path: Path,
) -> None:
    folder = prepare_corpus(tmp_path).tokenizer
    tokenizer = load_tokenizer(folder)
    ids, lengths = Encoder(tokenizer, append_eod=True).encode_batch(["", "ab"])
    assert (lengths[0], ids[0]) == (1, tokenizer.eos_token_id)
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": ""}\n{"text": "ab"}\n')
    preprocess_corpus(
        texts, tmp_path / "pair", tokenizer_model=folder, append_eod=True, backend="hf"
    )
    pair = MMapIndexedDataset(tmp_path / "pair_text_document")
    assert pair.document_offsets.tolist() == [0, 0, lengths[1]]


@pytest.mark.parametrize("order", ["stateless", "nanotron"])
def test_a_file_of_masks_is_read_in_the_order_of_the_ids_as_notebook_03_says(
    tmp_path: Path, order: str
) -> None:
    paths: dict[str, list[Path]] = {"ids": [], "mask": []}
    for source, length in (("a", 1000), ("b", 700)):
        ids = np.random.default_rng(length).integers(1, 300, length)
        for kind, values in (("ids", ids), ("mask", ids % 2)):
            paths[kind].append(tmp_path / f"{source}_{kind}.npy")
            with TokenFileWriter(
                paths[kind][-1], dtype="uint16", vocab_size=300
            ) as writer:
                writer.write_document(values.tolist())
    rows, masks = (
        Nanoset(paths[kind], [3, 1], 32, 200, random_seed=7, order=order).read(
            np.arange(200)
        )
        for kind in ("ids", "mask")
    )
    assert np.array_equal(rows % 2, masks)


def test_notebook_16_says_what_benchmarks_packing_measured() -> None:
    found, page = stored("packing"), page_text("16")
    for tokens, ways in found["milliseconds"].items():
        causal, mask, edges = (
            f"{ways[way]:.0f} ms" for way in ("causal", "mask", "cu_seqlens")
        )
        assert f"| {int(tokens):,} tokens | {causal} | {mask} | {edges} |" in page
    rates = [rate / 1e6 for rate in found["documents_per_second"].values()]
    assert (round(min(rates)), round(max(rates))) == (4, 9)
    assert "four to nine million documents a second" in page


def test_notebook_13_says_what_benchmarks_order_build_measured() -> None:
    times = [
        time
        for by_order in stored("order_build")["nanoseconds"].values()
        for time in by_order["stateless"].values()
    ]
    said = f"{min(times)} ns per lookup with one source, and {max(times)} ns with a thousand"
    assert f"The price is {said}" in page_text("13")


def test_notebook_09_says_what_its_longer_runs_found() -> None:
    stored = json.loads((NOTEBOOKS / "course/masks.json").read_text())
    ends = [found["480"] for found in stored.values()]
    ahead = [it["causal -> causal"] - it["document -> document"] for it in ends]
    assert len(ahead) == 3 and min(ahead) > 0
    assert "the document mask is still ahead for every seed" in page_text("09")
    for it in ends:
        assert it["document -> causal"] > it["document -> document"] + 1
        assert abs(it["causal -> document"] - it["causal -> causal"]) < 0.05


def test_notebooks_01_and_11_say_what_benchmarks_streaming_measured() -> None:
    rates, page = stored("streaming")["tokens_per_core_second"], page_text("11")
    slow, fast = (rates[f"stream, {backend}"] for backend in ("hf", "gigatoken"))
    assert f"One core encodes {slow / 1e6:.1f} million tokens" in page
    assert f"{fast / 1e6:.1f} million with the other backend" in page
    days, hours = 1e12 / slow / 86_400, 1e12 / fast / 3600
    assert (
        f"a trillion tokens take one core {days:.0f} days with the first and "
        f"{hours:.0f} hours with the second"
    ) in page
    assert f"feeds {slow // 66_000} of them" in page
    first = f"one core takes {days:.0f} days with Hugging Face's tokenizers"
    assert f"{first} and {hours:.0f} hours with gigatoken" in page_text("01")
    for rate, core_hours, said in ((slow, 6_300, 4 * 24), (fast, 310, 5)):
        exactly = 15.6e12 / rate / 3600
        assert float(f"{exactly:.2g}") == core_hours
        assert exactly / 64 == pytest.approx(said, rel=0.05)
    assert (
        "Llama 3 405B's 15.6 trillion would take 6,300 or 310 core hours: on 64 cores, four "
        "days or five hours"
    ) in page_text("01")


def test_notebook_15_says_what_one_per_cent_of_a_run_is() -> None:
    assert round(0.01 * 16_384 * 54 * 24, -3) == 212_000
    assert "54 days of Llama 3 405B's 16,384 GPUs" in page_text("15")
    assert "is 212,000 GPU hours" in page_text("15")


def test_notebook_15_says_what_1_024_gpus_consume() -> None:
    rate = 1024 * 989e12 * 0.4 / (6 * 7e9)
    said = f"{rate / 1e6:.1f} million tokens a second, or {4 * rate / 1e6:.0f} MB"
    assert f"On 1,024 GPUs, 7 billion parameters consume {said}" in page_text("15")


def test_notebook_15_says_how_often_some_rank_of_1_024_stalls() -> None:
    share = 1 - (1 - 1 / 1000) ** 1024
    said = f"{share:.0%} of the steps wait for some rank"
    assert "If each of 1,024 ranks stalls in one step of a thousand" in page_text("15")
    assert said in page_text("15")


def test_one_row_of_step_200_stands_out_as_notebook_14_says() -> None:
    """The loss of the step is the mean of its rows; without the bad one there is no jump."""
    stored = json.loads((NOTEBOOKS / "course/jump.json").read_text())
    rows = stored["rows of step 200"]
    for losses in rows.values():
        *others, bad = losses
        assert bad > 2 * max(others)
    steps, losses = stored["steps"], rows["before step 200"]
    assert np.mean(losses) == pytest.approx(steps[199], abs=0.01)
    assert np.mean(losses[:-1]) < np.mean(steps[189:199])


def test_a_rank_of_a_v_gets_inputs_and_labels_as_notebook_04_says(
    tmp_path: Path,
) -> None:
    from torch.distributed.pipelining import schedules

    assert 'style="v"' in inspect.getsource(schedules.ScheduleDualPipeV)
    stages = schedules.generate_stage_to_rank_mapping(4, 8, style="v")
    assert stages[0] == stages[7] == 0
    rows = Nanoset(tiny_corpus(tmp_path)["stories"], None, 8, 4)
    for rank in range(4):
        loader = build_nanoset_dataloader(
            rows, micro_batch_size=2, output_pp_rank=0, current_pp_rank=rank
        )
        given = {name: torch.is_tensor(it) for name, it in next(iter(loader)).items()}
        assert set(given.values()) == {rank == 0}


def test_a_second_job_gives_up_after_the_time_that_notebook_06_names() -> None:
    source = inspect.getsource(checkpoint)
    assert checkpoint.LOCK_TRIES == 100 and "time.sleep(0.1)" in source
    assert "a second job gets an error after ten seconds" in page_text("06")


def test_document_d_is_text_d_of_its_file_as_notebook_14_says(tmp_path: Path) -> None:
    """Blank lines, and lines that are left out, do not count."""
    texts = ["one", "", "three", "four"]
    lines = [json.dumps({"text": text, "url": f"u/{text}"}) for text in texts]
    lines.insert(1, "")
    lines.insert(3, "no JSON")
    path, folder = tmp_path / "texts.jsonl", prepare_corpus(tmp_path).tokenizer
    path.write_text("\n".join(lines) + "\n")
    preprocess(
        path, tmp_path / "texts", folder, append_eod=True, backend="hf", on_error="skip"
    )
    file = TokenFile(tmp_path / "texts_input_ids.npy")
    documents = np.split(file.tokens, file.document_offsets[1:-1])
    tokenizer = load_tokenizer(folder)
    assert [tokenizer.decode(ids[:-1]) for ids in documents] == texts
    assert "document $d$ is text $d$ of the file that was tokenized" in page_text("14")


@pytest.mark.parametrize("number", [f"{number:02}" for number in range(1, 19)])
def test_a_page_links_nanotron_at_the_commits_of_its_line_of_versions(
    number: str,
) -> None:
    page = page_text(number)
    [versions] = re.findall(r"^\*\*Versions\*\*: (.*)$", page, re.MULTILINE)
    linked = re.findall(r"nanotron/blob/([0-9a-f]{7})", page)
    assert set(linked) <= set(re.findall(r"\b[0-9a-f]{7}", versions))


def test_the_loss_after_a_restart_is_as_changing_a_run_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from course.restarts import AHEAD, after_a_restart

    monkeypatch.chdir(tmp_path)
    page = (NOTEBOOKS.parent / "docs/changing_a_run.md").read_text(encoding="utf-8")
    means = []
    for name, higher in after_a_restart().items():
        spans = higher[:, :1], higher[:, 1:AHEAD], higher[:, AHEAD:]
        means.append([span.mean() for span in spans])
        by_seed = [span.mean(axis=1) for span in spans]
        cells = [", ".join(f"{mean:+.2f}" for mean in both) for both in by_seed]
        assert " | ".join([f"\n| {name}", *cells]) in page
    lost, early, late, from_the_start = means
    assert lost[0] == 0 and lost[1] > 0.1 and lost[2] > 0.05
    assert early[0] < -0.5 and early[1] < -0.2 and abs(early[2]) < 0.1
    assert max(map(abs, late)) < 0.2
    assert max(from_the_start) < -0.1


def test_weights_by_temperature_and_cap_are_as_the_decision_page_says() -> None:
    page = (NOTEBOOKS.parent / "docs/decide.md").read_text(encoding="utf-8")
    sizes, run, S = [5000e9, 800e9, 50e9], 6000e9, 4096
    cap = 4 * sizes[2] / run
    rest = (1 - cap) / sum(sizes[:2])
    ways = {
        "by size, T = 1": sizes,
        "T = 2": np.sqrt(sizes).tolist(),
        "math at most 4 times": [rest * sizes[0], rest * sizes[1], cap],
    }
    for way, weights in ways.items():
        taken, _ = plain.blend_targets(weights, int(run / S))
        shares = np.divide(weights, sum(weights))
        epochs = [count / (size // S) for count, size in zip(taken, sizes, strict=True)]
        cells = [
            f"{share:.1%}: {read:.2f}"
            for share, read in zip(shares, epochs, strict=True)
        ]
        assert " | ".join([f"\n| {way}", *cells]) in page


def test_an_address_in_int32_turns_negative_as_the_decision_page_says() -> None:
    samples = np.array([524_288], dtype=np.int32)
    assert int(samples[0]) * 4096 == 2**31
    assert (samples * np.int32(4096))[0] < 0  # and no error


def test_files_are_repaired_by_their_document_offsets_as_notebook_03_says(
    tmp_path: Path,
) -> None:
    """Documents without an EOS, and with two BOS, are copied one by one; no tokenizer is asked."""
    EOS, BOS = 0, 1
    documents = {"bare": [[5, 6], [7, 8, 9]], "twice": [[1, 1, 5, 6], [1, 1, 7, 8, 9]]}
    for name, ids in documents.items():
        with MMapIndexedDatasetBuilder(tmp_path / f"{name}.bin", np.uint16) as pair:
            for document in ids:
                pair.add_document(document, [len(document)])
        file = open_tokens(tmp_path / f"{name}.bin")
        repaired = tmp_path / f"{name}_input_ids.npy"
        with TokenFileWriter(repaired, dtype="uint16", vocab_size=16) as writer:
            for begin, end in itertools.pairwise(file.document_offsets):
                found = file.tokens[begin:end].tolist()
                writer.write_document([*found, EOS] if name == "bare" else found[1:])
        wanted = (
            [5, 6, EOS, 7, 8, 9, EOS] if name == "bare" else [BOS, 5, 6, BOS, 7, 8, 9]
        )
        assert TokenFile(repaired).tokens.tolist() == wanted


def test_each_document_is_cut_in_zig_zag_as_notebook_04_says() -> None:
    row = np.array([0, 4, 12, 16])  # documents of 4, 8 and 4 tokens
    begins = np.repeat(row[:-1], np.diff(row))  # of each token's document
    for rank in range(2):
        columns, own = zig_zag(row, rank, cp=2)
        first_of_each = columns[own[:-1]]
        assert np.array_equal(begins[first_of_each], row[:-1])
        assert (columns - begins[columns] + 1).sum() == 28
    assert "so that each of two ranks attends to 28 tokens" in page_text("04")


def test_the_page_of_loaders_says_how_many_bytes_their_states_take() -> None:
    page = (NOTEBOOKS.parent / "docs/loaders.md").read_text(encoding="utf-8")
    table = page.split("## Bytes of loader state")[1].split("\n## ")[0]
    rows = re.findall(r"^\| .* \| (\d.*) \| .* \|$", table, re.MULTILINE)
    said = [[*map(int, re.findall(r"\b\d+", row.replace(",", "")))] for row in rows]
    assert said == [
        [*dict.fromkeys(sizes.values())]
        for sizes in stored("state_bytes")["bytes"].values()
    ]


def test_notebooks_13_and_15_say_what_benchmarks_startup_measured() -> None:
    found = stored("startup")
    ends = {name: it["100000000"] for name, it in found["startup_seconds"].items()}
    nanotron, megatron = ends["Nanotron's way"], ends["megatron-core"]
    olmo = ends["OLMo-core's way"]
    seconds = f"{nanotron:.0f} | {megatron:.0f} | {ends['torch.randperm']:.1f} | "
    seconds += f"{olmo:.1f} | less than 0.001 |"
    assert f"| seconds to build | {seconds}" in page_text("13")
    assert max(ends["grain"], ends["nanoset_ref, stateless"]) < 0.001
    starts = [
        1e3 * it for it in found["startup_seconds"]["nanoset_ref, stateless"].values()
    ]
    said = f"its start grows from {min(starts):.2f} to {max(starts):.2f} ms"
    assert f"{said}, and its resume stays between 1.5 and 3 ms" in page_text("15")
    resumes = found["resume_seconds"]["nanoset_ref"].values()
    assert min(resumes) > 1.5e-3 and max(resumes) < 3e-3
