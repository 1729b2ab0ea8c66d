"""The version of Fluid implemented by this package, and checks against it."""

from __future__ import annotations

import re
from importlib import metadata

# The Fluid whose programs and scripts run here; `require_version` in scripts asks for it.
full_version = "1.8.5"
_FORMAT = re.compile(r"\d+(\.\d+){0,3}")


def _parts(version: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in version.split("."))
    return numbers + (0,) * (4 - len(numbers))


def version_number(version: str) -> int:
    """The version number as stored in program files: ``"1.8.5"`` -> 1008005."""
    major, minor, patch, _ = _parts(version)
    return (major * 1000 + minor) * 1000 + patch


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Check that the implemented version of Fluid (1.8.5) lies between the two.

    Raises TypeError or ValueError for malformed versions, Exception if it does not.

    Examples:
        >>> fluid.require_version("1.7.0")
        >>> fluid.require_version("2.0.0")
        Traceback (most recent call last):
        Exception: VersionError: Fluid version in 2.0.0 or higher is required, ...
    """
    given = [("min_version", min_version)] + ([("max_version", max_version)] if max_version is not None else [])
    for name, version in given:
        if not isinstance(version, str):
            raise TypeError(
                f"The type of '{name}' in require_version must be str, but received {type(version)}. Write '1.8.0'."
            )
        if not _FORMAT.fullmatch(version):
            raise ValueError(
                f"The value of '{name}' in require_version must be in format '\\d+(\\.\\d+){{0,3}}', like '1.5.2.0', "
                f"but received {version}."
            )
    too_old = _parts(full_version) < _parts(min_version)
    too_new = max_version is not None and _parts(full_version) > _parts(max_version)
    if too_old or too_new:
        between = f"{min_version} or higher" if max_version is None else f"from {min_version} to {max_version}"
        raise Exception(
            f"VersionError: Fluid version in {between} is required, but {full_version} is what runs here. Ask for a "
            "version that includes it."
        )


def package_version() -> str:
    """The version of this package; '0' if it runs from a directory without being installed."""
    try:
        return metadata.version("fluidjax")
    except metadata.PackageNotFoundError:
        return "0"
