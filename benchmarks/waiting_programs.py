"""The programs that `benchmarks.waiting_runs` runs, each in a process of its own; they print a line of JSON."""

ANSWER = """
import contextlib, io, json, sys, time
from nanoset_ref.cli import main
def answer(line):
    begun = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(line.split())
    assert said.getvalue()
    return time.perf_counter() - begun
answer(sys.argv[1])
print(json.dumps({"seconds": answer(sys.argv[2])}))
"""
MANY = """
import json, os, resource, sys, time
import torch
from nanoset_ref import Nanoset, build_nanoset_dataloader
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
folder = sys.argv[1]
begun = time.perf_counter()
paths = [f"{folder}/{name}" for name in sorted(os.listdir(folder))]
data = Nanoset(paths, None, 2048, int(sys.argv[2]), order=sys.argv[3])
next(iter(build_nanoset_dataloader(data, micro_batch_size=8)))
seconds = time.perf_counter() - begun
status = open("/proc/self/status").read()  # getrusage would count the parent's memory as well
mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "resident_mib": mib}))
"""
FIRST_BATCH = """
import json, os, sys, time
import numpy as np
import torch
from torch.utils.data import DataLoader
folder, suffix = sys.argv[1:]
{imports}
begun = time.perf_counter()
paths = [f"{{folder}}/{{name}}" for name in sorted(os.listdir(folder)) if name.endswith(suffix)]
{program}
seconds = time.perf_counter() - begun
status = open("/proc/self/status").read()
mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({{"seconds": seconds, "resident_mib": mib}}))
"""
OURS = (
    "from nanoset_ref import Nanoset, build_nanoset_dataloader",
    """
data = Nanoset(paths, None, 2048, None, order="stateless")
next(iter(build_nanoset_dataloader(data, micro_batch_size=8)))
""",
)
MEGATRON = (
    """
import logging
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
logging.disable()
torch.distributed.init_process_group(
    "gloo", init_method="tcp://127.0.0.1:0", world_size=1, rank=0
)
class Tokenizer:
    vocab_size, eod, eos, pad, unique_identifiers = 50_257, 50_256, 50_256, 3, "benchmark"
""",
    """
prefixes = [path.removesuffix(".bin") for path in paths]
cached = os.path.exists("megatron_cache")
config = GPTDatasetConfig(
    random_seed=1, sequence_length=2048, blend_per_split=[(prefixes, None), None, None],
    path_to_cache="megatron_cache", fast_cache_load=cached, defer_npy_index_mmap=cached,
    tokenizer=Tokenizer(), reset_position_ids=False, reset_attention_mask=False,
    eod_mask_loss=False, create_attention_mask=False,
)
builder = BlendedMegatronDatasetBuilder(GPTDataset, [None] * 3, lambda: True, config)
next(iter(DataLoader(builder.build()[0], 8)))
""",
)
OLMO = (
    """
from olmo_core.data import DataCollator, NumpyFSLDataset
from olmo_core.data.data_loader import NumpyDataLoaderBase
""",
    """
data = NumpyFSLDataset(
    *paths, sequence_length=2048, pad_token_id=50_257, eos_token_id=0, vocab_size=50_258,
    dtype=np.uint16,
)
loader = NumpyDataLoaderBase.wrap_numpy_dataset(
    data, global_batch_size=8 * 2048, collator=DataCollator(pad_token_id=50_257),
    work_dir="olmo_cache", num_threads=0,
)
loader.reshuffle(epoch=1)
next(iter(loader))
""",
)
LOADER = """
import json, os, sys
from nanoset_ref import Nanoset, build_nanoset_dataloader
path, options = sys.argv[1], json.loads(sys.argv[2])
if options.pop("cold", False):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
data = Nanoset(path, None, 4096, 10**9, order="stateless")
batches = iter(build_nanoset_dataloader(data, micro_batch_size=8, **options))
"""
NOTHING = """
import itertools
batches = itertools.repeat(0)
"""
TENSORS = """
import itertools
import torch
rows = torch.zeros(512, 4097, dtype=torch.int64)
mask = torch.ones(512, 4096, dtype=torch.bool)
names = "input_ids", "input_mask", "label_ids", "label_mask"
columns = rows[:, :-1], mask, rows[:, 1:], mask
"""
CUT = """
def cut():
    for first in itertools.cycle(range(0, 512, 8)):
        yield dict(zip(names, [column[first : first + 8] for column in columns]))
batches = cut()
"""
CUT_AT_ONCE = """
def cut():
    while True:
        views = [column.unsafe_split_with_sizes([8] * 64) for column in columns]
        for batch in zip(*views):
            yield dict(zip(names, batch))
batches = cut()
"""
STEPS = """
import json, statistics, time
steps, waited, took = 300, [], []
for _ in range(2000):  # the kernels are compiled, and the blocks have their full size
    next(batches)
for _ in range(steps):
    begun = time.perf_counter()
    next(batches)
    waited.append(time.perf_counter() - begun)
    time.sleep(0.02)
    took.append(time.perf_counter() - begun)
median = statistics.median(waited)
print(json.dumps({
    "share": sum(waited) / sum(took),
    "median_share": median / statistics.median(took),
    "median_microseconds": 1e6 * median,
}))
"""
