"""Share batches of text among threads, processes and ranks; yield the results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from nanoset_ref.io.pools import close_pool
from nanoset_ref.preprocess.batch_encoder import EncodedBatch
from nanoset_ref.preprocess.text_blocks import TextBatch

BatchFunction = Callable[[TextBatch], EncodedBatch]


def encode_in_order(
    batches: Iterable[TextBatch], functions: Sequence[BatchFunction]
) -> Iterator[tuple[TextBatch, EncodedBatch]]:
    """Encode batches, a few in advance; yield each with its ids, in order.

    Args:
        batches: batches of text; prefetched.
        functions: each runs in a thread of its own, one batch at a time.
    """
    free = deque(functions)

    def run(batch: TextBatch) -> EncodedBatch:
        function = free.popleft()
        encoded = function(batch)
        free.append(function)  # unless it failed
        return encoded

    pending: deque[tuple[TextBatch, Future[EncodedBatch]]] = deque()
    pool = ThreadPoolExecutor(len(functions))
    close = close_pool  # when the interpreter exits, this module has lost its names
    try:
        for batch in batches:
            pending.append((batch, pool.submit(run, batch)))
            if len(pending) > 2 * len(functions):
                first, future = pending.popleft()
                yield first, future.result()
        for batch, future in pending:
            yield batch, future.result()
    finally:
        # waits for the running batches only
        close(pool, [future for _, future in pending])
