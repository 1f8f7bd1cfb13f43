"""The document, sample and shuffle index of Megatron-style data: how they are built and cached.

    python -m nanoset_ref.megatron.index --data-path web_text_document --sequence-length 4096 ...

three_indexes  the arrays, and those of a blend
index_command  the command, which builds the cached indexes of a run in advance
"""
