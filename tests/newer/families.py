"""``python -m tests.newer.families FOLDER``: which ops the exports of Paddle 2's families of models contain.

FOLDER holds a folder for each family, with exports (``inference.pdmodel``) at any depth below it. What ops they contain
goes into ``families.json``; a test holds it against what is registered, and ``docs/coverage.md`` counts it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fluidjax.proto import framework_pb2 as pb

RECORDED = Path(__file__).with_name("families.json")

Families = dict[str, dict[str, list[str]]]


def families() -> Families:
    """The networks and op types of each family."""
    return json.loads(RECORDED.read_text())


def ops_of(file: Path) -> set[str]:
    """The op types of a program, in any of its blocks."""
    program = pb.ProgramDesc.FromString(file.read_bytes())
    return {op.type for block in program.blocks for op in block.ops}


def main() -> None:
    """Write what was found."""
    found: Families = {}
    for folder in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()):
        files = sorted(folder.resolve().rglob("inference.pdmodel"))
        networks = [file.parent.name for file in files]
        found[folder.name] = {"networks": networks, "ops": sorted(set().union(*map(ops_of, files)))}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
