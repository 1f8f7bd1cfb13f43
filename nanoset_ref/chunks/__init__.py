r"""From raw subsets to training chunks: download, tokenise and concatenate, mix and split, validate, convert.

Each step is a function and a command:

    python -m nanoset_ref.chunks download --urls urls.txt --out_root redpajama_v1 --exclude common_crawl
    python -m nanoset_ref.chunks tokenize --input_root ./ --out_root tokens --tokenizer huggyllama/llama-7b \
        --concat_tokens 2049 --eos_text '</s>' --num_workers 64
    python -m nanoset_ref.chunks mix --input_root tokens --out_root mixed_360 --shuffle \
        --subfolders 'redpajama_v1/arxiv,redpajama_v1/c4' --num_chunks 360 --num_valid_samples_per_subfolder 102400
    python -m nanoset_ref.chunks validate mixed_360
    python -m nanoset_ref.chunks convert mixed_360/train --output_prefix datasets/mixed
"""

from __future__ import annotations

from nanoset_ref.chunks.chunk_conversion import chunks_to_megatron, chunks_to_tokens
from nanoset_ref.chunks.chunk_manifest import Account, ChunkManifest, ManifestError, report
from nanoset_ref.chunks.downloads import DownloadError, download_hub, download_urls
from nanoset_ref.chunks.mixing import mix
from nanoset_ref.chunks.packing import Packer, interleave_workers
from nanoset_ref.chunks.subsets import TokenizeConfig, find_subsets, tokenize
from nanoset_ref.chunks.validation import FileReport, validate

__all__ = [
    "Account",
    "ChunkManifest",
    "DownloadError",
    "FileReport",
    "ManifestError",
    "Packer",
    "TokenizeConfig",
    "chunks_to_megatron",
    "chunks_to_tokens",
    "download_hub",
    "download_urls",
    "find_subsets",
    "interleave_workers",
    "mix",
    "report",
    "tokenize",
    "validate",
]
