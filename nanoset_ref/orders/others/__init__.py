"""Orders of other loaders, each equal to the real one at the version that its module names.

`build_order` takes the names of `OTHERS`, with the options of the class after a colon:
"olmo_core:chunk_size=2,batch_size=2048". `docs/loaders.md` compares the loaders.

grain, maxtext                   google/grain, and MaxText with it
levanter                         Levanter and Marin
llm_c                            llm.c
modded_nanogpt                   modded-nanogpt
mosaicml                         mosaicml-streaming
nanotron_main, nanotron_stages   Nanotron's main branch: a stage, and the stages of a config
olmo_core, olmo_core_packing     OLMo-core: rows of one length, and packed documents
epochs                           the base of orders that shuffle each epoch anew
"""

from nanoset_ref.orders.base import Order
from nanoset_ref.orders.others.grain import GrainOrder as GrainOrder
from nanoset_ref.orders.others.levanter import LevanterOrder as LevanterOrder
from nanoset_ref.orders.others.llm_c import LlmCOrder as LlmCOrder
from nanoset_ref.orders.others.maxtext import MaxTextOrder as MaxTextOrder
from nanoset_ref.orders.others.modded_nanogpt import document_walk as document_walk
from nanoset_ref.orders.others.mosaicml import Py1eOrder as Py1eOrder
from nanoset_ref.orders.others.nanotron_main import (
    NanotronMainOrder as NanotronMainOrder,
)
from nanoset_ref.orders.others.nanotron_stages import nanotron_stages as nanotron_stages
from nanoset_ref.orders.others.olmo_core import OLMoCoreOrder as OLMoCoreOrder
from nanoset_ref.orders.others.olmo_core_packing import (
    packed_instances as packed_instances,
)

OTHERS: dict[str, type[Order]] = {
    order.name: order
    for order in (
        GrainOrder,
        LevanterOrder,
        LlmCOrder,
        MaxTextOrder,
        NanotronMainOrder,
        OLMoCoreOrder,
        Py1eOrder,
    )
}
