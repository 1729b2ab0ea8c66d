"""The operators, one package per family and one file per idea. Importing this package registers all of them."""

from importlib import import_module
from pkgutil import walk_packages

from lowering.collection import uncollected

with uncollected():
    for _module in sorted(m.name for m in walk_packages(__path__, f"{__name__}.")):
        import_module(_module)
