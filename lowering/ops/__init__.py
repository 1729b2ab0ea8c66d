"""The operators, a folder per family and a file per idea. Importing this package registers all of them."""

import gc
from importlib import import_module
from pkgutil import walk_packages

# What rules and their definitions are made of lives as long as the process: looking for garbage in it, and in all that
# was imported before, would take half of the time.
_collects = gc.isenabled()
gc.disable()
try:
    for _module in sorted(m.name for m in walk_packages(__path__, f"{__name__}.")):
        import_module(_module)
finally:
    if _collects:
        gc.enable()
