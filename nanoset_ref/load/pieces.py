"""Rows that are put together from pieces of files: packed documents, and Megatron's samples."""

from nanoset_ref.io.njit import njit


@njit(cache=True, nogil=True, work=lambda tokens, pieces, out: out.size)
def copy_pieces(tokens, pieces, out):
    """Put rows together from pieces of one file.

    Args:
        tokens: integers [num_tokens], the ids of the file. Bounds are not checked.
        pieces: int64 [n, 4], (row, begin, end, column): tokens begin:end go to out[row, column:].
        out: integers [rows, length]. Places that no piece covers keep their values.
    """
    for n in range(len(pieces)):
        source = tokens[pieces[n, 1] : pieces[n, 2]]
        target = out[pieces[n, 0], pieces[n, 3] :]
        for i in range(len(source)):  # over two slices, which the compiler vectorizes
            target[i] = source[i]
