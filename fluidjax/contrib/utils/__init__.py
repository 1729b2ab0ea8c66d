"""Files on HDFS, and programs with distributed lookup tables."""

from fluidjax.contrib.utils import hdfs_utils as hdfs_utils
from fluidjax.contrib.utils.hdfs_utils import HDFSClient as HDFSClient
from fluidjax.contrib.utils.hdfs_utils import multi_download as multi_download
from fluidjax.contrib.utils.hdfs_utils import multi_upload as multi_upload
