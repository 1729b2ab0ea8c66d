"""What a script gets that says ``import paddle``: readers, data sets and ``paddle.fluid``."""

import fluidjax as fluid
from fluidjax.paddle import batch as _batch
from fluidjax.paddle import check_import_scipy as _check
from fluidjax.paddle import compat, dataset, reader, version

batch = _batch.batch
check_import_scipy = _check.check_import_scipy

__version__ = version.full_version
__git_commit__ = version.commit

__all__ = ["batch", "check_import_scipy", "compat", "dataset", "fluid", "reader", "version"]
