"""Files on HDFS, and programs with distributed lookup tables."""

from fluidjax.contrib.utils import hdfs_utils as hdfs_utils
from fluidjax.contrib.utils import lookup_table_utils as lookup_table_utils
from fluidjax.contrib.utils.hdfs_utils import HDFSClient as HDFSClient
from fluidjax.contrib.utils.hdfs_utils import multi_download as multi_download
from fluidjax.contrib.utils.hdfs_utils import multi_upload as multi_upload
from fluidjax.contrib.utils.lookup_table_utils import (
    convert_dist_to_sparse_program as convert_dist_to_sparse_program,
)
from fluidjax.contrib.utils.lookup_table_utils import (
    load_persistables_for_increment as load_persistables_for_increment,
)
from fluidjax.contrib.utils.lookup_table_utils import (
    load_persistables_for_inference as load_persistables_for_inference,
)

__all__ = [
    "load_persistables_for_increment", "load_persistables_for_inference", "convert_dist_to_sparse_program",
    "HDFSClient", "multi_download", "multi_upload",
]  # fmt: skip
