"""Small token files and their documents, for the tests of formats."""

import itertools

from nanoset_ref.tokens import TokenFileWriter, open_tokens

DOCUMENTS = [[5, 6, 7], [], [8], list(range(100, 140)), [9, 9]]


def written(path, documents, dtype="uint16", **facts):
    with TokenFileWriter(path, dtype=dtype, **facts) as writer:
        for document in documents:
            writer.write_document(document)
    return open_tokens(path)


def as_lists(documents):
    return [
        documents.tokens[a:b].tolist()
        for a, b in itertools.pairwise(documents.require_document_offsets())
    ]
