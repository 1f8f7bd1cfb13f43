"""Cards from command lines of llm.c, whose shards say how long they are."""

import numpy as np
import pytest
from loader_configs import card

from nanoset_ref import Nanoset


def test_llm_c_needs_its_shards(tmp_path):
    header = np.zeros(256, dtype="<i4")
    for number, tokens in enumerate((200, 130)):
        header[:3] = 20240520, 1, tokens
        content = header.tobytes() + np.arange(tokens, dtype="<u2").tobytes()
        (tmp_path / f"train_{number}.bin").write_bytes(content)
    text = f'mpirun -np 2 ./train_gpt2cu -i "{tmp_path}/train_*.bin" -b 3 -t 8 -d 96 -x 4 -o log'
    found = card(tmp_path, "llm.c", text)
    stage = found.facts["stages"][0]
    assert (stage["batch_size"], stage["dp_size"], stage["micro_batch_size"]) == (
        12,
        2,
        3,
    )
    order = "llm_c:micro_batch_size=3,dp_size=2"
    rows = Nanoset(sorted(tmp_path.glob("train_*.bin")), None, 8, 48, order=order)
    for step in range(1, 5):
        read = [(row.source, row.sample) for row in found.where(step)]
        assert read == [rows.order[k] for k in range(12 * step - 12, 12 * step)]
    assert found.where(1)[0].first_byte == 1024 + rows.order[0][1] * 16
    with pytest.raises(ValueError, match=r"no shard matches -i .*nowhere"):
        card(tmp_path, "llm.c", text.replace("train_*", "nowhere"))
