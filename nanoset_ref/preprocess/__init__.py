"""Text to token ids with any number of threads, processes or ranks of torchrun, always the same.

    python -m nanoset_ref.preprocess --input text.jsonl --output-prefix data/text \\
        --tokenizer-name-or-path gpt2

text                       opens files and datasets of text
text_formats, text_blocks  the documents in them, block by block
json_lines                 documents in lines of JSON, with errors that name file and line
tokenizer                  loads a tokenizer (or a SentencePiece model) from a folder or the Hub
encoder                    text -> token ids; the identity of a tokenizer, for plans
batch_encoder              encodes batches in several threads, and yields them in order
backends                   the libraries that encode
bos_eos                    the ids before and after each document: BOS, EOS
special_tokens             special tokens in documents: kept, split or refused
piece_cutter               cuts long documents where no token spans the cut
tokenization               from a source of text into a sink, with counts and progress
encoding_processes         the processes and ranks that encode for the first one
preprocess_command         a whole job, into one token file: the function and command `preprocess`
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
