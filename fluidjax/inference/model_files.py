"""The location of a predictor's model: a directory, two files, or two buffers."""

from __future__ import annotations

import os

from fluidjax.base.errors import explain


class Model:
    """The location of a model's files."""

    def __init__(self) -> None:
        self.folder = ""
        self.program = ""
        self.parameters = ""
        self.contents: tuple[bytes, bytes] | None = None

    def arguments(self) -> tuple[str | None, str | bytes | None, str | bytes | None]:
        """The model as arguments of ``fluid.io.load_inference_model``: directory, program, parameters.

        Raises ValueError if none was specified.
        """
        if self.contents is not None:
            return None, *self.contents
        if self.folder:
            return self.folder, self.program or None, self.parameters or None
        if self.program and self.parameters:
            folder = os.path.dirname(self.program) or "."
            if os.path.abspath(os.path.dirname(self.parameters) or ".") == os.path.abspath(folder):
                return folder, os.path.basename(self.program), os.path.basename(self.parameters)
            return None, _content(self.program), _content(self.parameters)
        raise ValueError(
            explain(
                "create_paddle_predictor: the config names no model",
                "a folder, or the program's and the parameters' files",
                f"model_dir {self.folder!r}, prog_file {self.program!r}, params_file {self.parameters!r}",
                "write AnalysisConfig(folder) or AnalysisConfig(program_file, parameters_file)",
            )
        )


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
