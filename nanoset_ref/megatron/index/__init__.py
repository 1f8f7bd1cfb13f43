"""The document, sample and shuffle index of Megatron-style data: how they are built and cached.

    python -m nanoset_ref.megatron.index --data-path web_text_document --sequence-length 4096 ...

three_indexes  the three arrays of a corpus, and the two of a blend
index_command  the command, which builds the cached indexes of a run in advance
"""
