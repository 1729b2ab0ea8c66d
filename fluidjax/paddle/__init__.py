"""What a script gets that says ``import paddle``: readers, data sets and ``paddle.fluid``."""
