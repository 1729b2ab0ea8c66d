"""``python -m tests.golden.modules [case ...]``: recorded networks' forward passes as JAX modules, compared."""

from __future__ import annotations

import argparse
import sys

import jax
import numpy as np

import fluidjax as fluid
from fluidjax.export import ExportError
from fluidjax.export.c.convert import Feed
from fluidjax.export.python.convert import files_of
from tests.golden.c import job_of
from tests.golden.recordings import folder
from tests.golden.session import Session
from tests.golden.values import Tensor
from tests.golden.zoocase import ZooCase, zoo_case, zoo_cases


def convert(case: ZooCase) -> dict[str, bytes] | None:
    """The files of a network's test program for the recorded feeds; None where it has no test program."""
    job = job_of(case, "forward")
    if job is None:
        return None
    raw, fetches, feeds = job
    session = Session()
    session.set(case.initial_values())
    program = fluid.Program.parse_from_string(raw)._prune_with_input(list(feeds), fetches)
    draw = {
        n: Feed(v.array, tuple(np.diff(level).tolist() for level in v.lod))
        for n, v in feeds.items()
        if isinstance(v, Tensor) and v.array is not None
    }
    return files_of(program, list(feeds), fetches, session.scope, draws=[draw], name=case.name)


def main() -> int:
    """Convert and report; the exit status is 1 when a module differs, or none ran."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.modules", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all")
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {folder()}")
    good = failed = 0
    for name in args.cases or zoo_cases():
        try:
            files = convert(zoo_case(name))
        except ExportError as error:
            lost = "differs" if "another" in str(error) or "does not run" in str(error) else "cannot"
            failed += lost == "differs"
            print(
                f"{'FAIL' if lost == 'differs' else '----'}  {name:42s} {' '.join(str(error).split())[:600]}",
                flush=True,
            )
            continue
        finally:
            jax.clear_caches()
        good += files is not None
        said = f"{len(files['model.py'].splitlines())} lines" if files else "no test program"
        print(f"{'ok  ' if files else '----'}  {name:42s} {said}", flush=True)
    print(f"{good} as modules, {failed} differ")
    return 1 if failed or not good else 0


if __name__ == "__main__":
    sys.exit(main())
