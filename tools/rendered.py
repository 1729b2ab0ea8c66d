"""The notebooks as pages of the site, as they are stored: a hook of mkdocs (``tools/mkdocs.yml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"


def on_files(files: Any, config: Any) -> Any:
    """mkdocs's event: a page ``notebooks/NAME.html`` for each notebook; nothing is executed."""
    from mkdocs.structure.files import File
    from nbconvert import HTMLExporter

    for path in sorted(FOLDER.glob("*.ipynb")):
        page, _ = HTMLExporter(embed_images=True).from_filename(str(path))
        files.append(File.generated(config, f"notebooks/{path.stem}.html", content=page))
    return files
