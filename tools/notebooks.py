"""Executes the notebooks from top to bottom and stores what they show: ``python -m tools.notebooks [NAME ...]``."""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
# The file that the kernel gives to a cell.
_CELL = re.compile(r"[^\s\"']*ipykernel_\d+[/\\]\d+\.py")
_PACKAGES = re.compile(r"[^\s\"']*[/\\]site-packages[/\\]")
FOLDER = ROOT / "notebooks"


def execute(notebook: nbformat.NotebookNode, folder: str) -> nbformat.NotebookNode:
    """Run all cells in a new kernel, in ``folder``; CellExecutionError where one fails."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    return client.execute()


def stored(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A notebook without what differs each time it is executed: times of day, names of cells."""
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = nbformat.from_dict({}), f"cell-{number}"
        for output in cell.get("outputs", ()):
            for texts in (output, output.get("data", {})):
                texts.update(
                    {
                        key: _PACKAGES.sub("", _CELL.sub("cell", text))
                        for key, text in texts.items()
                        if isinstance(text, str)
                    }
                )
    return notebook


def main() -> None:
    """Execute those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="without .ipynb; default all")
    names = parser.parse_args().names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(stored(execute(nbformat.read(path, as_version=4), folder)), path)
        print(path.relative_to(ROOT), flush=True)


if __name__ == "__main__":
    main()
