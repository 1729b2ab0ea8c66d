"""Optimizers of the pslib library."""

from fluidjax.base.unbuilt import unbuilt

__all__ = ["DistributedAdam", "FLEET_GLOBAL_DICT"]

# What embeddings written under fleet_embedding tell the optimizer of their tables; nothing, as none can be written.
FLEET_GLOBAL_DICT = {
    "enable": False,
    "emb_to_table": {},
    "emb_to_accessor": {},
    "emb_to_size": {},
    "cur_sparse_id": 0,
    "cur_accessor": "",
    "click_name": "",
    "scale_sparse_grad": None,
}

DistributedOptimizerImplBase = unbuilt(__name__, "DistributedOptimizerImplBase")
DistributedAdam = unbuilt(__name__, "DistributedAdam")
