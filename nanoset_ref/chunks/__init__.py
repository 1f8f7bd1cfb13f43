r"""From raw subsets to training chunks: download, tokenize, mix, validate, convert.

Each step is a function and a command:

    python -m nanoset_ref.chunks download --urls urls.txt --out_root redpajama_v1 \
        --exclude common_crawl
    python -m nanoset_ref.chunks tokenize --input_root ./ --out_root tokens \
        --tokenizer huggyllama/llama-7b --concat_tokens 2049 --eos_text '</s>' --num_workers 64
    python -m nanoset_ref.chunks mix --input_root tokens --out_root mixed_360 --shuffle \
        --subfolders 'redpajama_v1/arxiv,redpajama_v1/c4' --num_chunks 360 \
        --num_valid_samples_per_subfolder 102400
    python -m nanoset_ref.chunks validate mixed_360
    python -m nanoset_ref.chunks convert mixed_360/train --output_prefix datasets/mixed

The public names are listed in `__init__.pyi` and imported on first use.

downloads                          download
subset_tokenization                tokenize: every subset, with its EOS and padding ids
packing, tokenize_config           documents packed into rows; the options
mixing                             mix
validation                         validate
chunk_conversion                   convert
row_format                         the rows of all these files
chunk_manifest                     the manifest of a folder, and its counts, which must add up
output_folder                      the folder that a command fills, and what it may remove there
commands                           the commands
corpus                             the embedded corpus of the course
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
