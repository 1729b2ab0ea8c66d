"""``paddle.io``: data sets, loaders, readers, and saved models."""

from fluidjax.dataloader import BatchSampler, Dataset
from fluidjax.io import (
    DataLoader,
    PyReader,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    get_program_parameter,
    get_program_persistable_vars,
    load,
    load_inference_model,
    load_program_state,
    map_readers,
    multiprocess_reader,
    save,
    save_inference_model,
    set_program_state,
    shuffle,
    xmap_readers,
)

__all__ = [
    "BatchSampler", "DataLoader", "Dataset", "PyReader", "batch", "buffered", "cache", "chain", "compose", "firstn",
    "get_program_parameter", "get_program_persistable_vars", "load", "load_inference_model", "load_program_state",
    "map_readers", "multiprocess_reader", "save", "save_inference_model", "set_program_state", "shuffle",
    "xmap_readers",
]  # fmt: skip
