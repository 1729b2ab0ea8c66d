"""``paddle.version``: the version of Paddle whose programs and files are supported."""

full_version = "1.8.5"
major = "1"
minor = "8"
patch = "5"
rc = "0"
istaged = True
commit = "8e1712a71057e3ca06a2927ceec51c18cb171fdc"
with_mkl = "ON"  # as in the wheel: scripts ask for what only its kernels with MKL compute, all of which is here


def show() -> None:
    """Print the version."""
    print("full_version:", full_version)
    print("major:", major)
    print("minor:", minor)
    print("patch:", patch)
    print("rc:", rc)


def mkl() -> str:
    """Whether what Paddle computes only with MKL is there, "ON" or "OFF"."""
    return with_mkl
