"""``fluidjax serve`` as a person starts and ends it."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from fluidjax.command import cli
from fluidjax.serving.settings import Settings
from tests.serving.at_work import saved, words_and_numbers


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "fluidjax", "serve", *map(str, arguments), "--port", "0", "--max-batch", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_process_says_where_it_is_and_ends_cleanly(tmp_path):
    folder = saved(tmp_path / "two", words_and_numbers, model_filename="m", params_filename="p")
    ends = {signal.SIGTERM: None, signal.SIGINT: None}
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(start(Path(folder) / "m", "--params", "p")) for _ in ends]  # they start together
        for server in servers:
            stack.callback(server.kill)
        for number, server in zip(ends, servers, strict=True):
            said = [server.stdout.readline() for _ in range(4)]
            url = re.search(r"two at (http://127\.0\.0\.1:\d+)", said[0])[1]
            assert "x  float32 of shape [-1, 3]" in said[1] and "1 levels of LoD" in said[2], said
            assert said[3].startswith("ready"), said
            body = b'{"inputs": {"x": [[1, 2, 3]], "w": [[1, 2]]}}'
            request = urllib.request.Request(f"{url}/predict", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=240) as answer:
                assert b"outputs" in answer.read()
            server.send_signal(number)
            ends[number] = server.wait(240), "Traceback" in server.stderr.read()
    assert ends == dict.fromkeys(ends, (0, False))


def test_a_damaged_model_is_refused_at_the_start(tmp_path, capsys):
    (tmp_path / "__model__").write_bytes(b"\xff" * 40)
    assert cli.main(["serve", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "this is not a program that can be read" in said and "expected" in said
    assert cli.main(["serve", str(tmp_path / "nosuch")]) == 2
    assert "no model at" in capsys.readouterr().err


def test_a_port_that_is_taken(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["serve", folder, "--port", str(taken.getsockname()[1])]) == 2
    assert "fluidjax serve: " in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "fluidjax.serving.server")
    assert cli.main(["serve", folder]) == 2
    assert "pip install 'fluidjax[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--port", "99999"], ["--max-batch", "0"], ["--timeout", "-1"], ["--queue", "x"]])
def test_bad_numbers(words, folder, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", folder, *words])
    assert ended.value.code == 2 and words[0] in capsys.readouterr().err


def test_what_the_arguments_say_by_default_is_what_settings_are(folder, monkeypatch):
    seen = []
    made = "fluidjax.serving.server.Server.__init__"
    monkeypatch.setattr(made, lambda self, model, settings, *at: seen.append(settings))
    with pytest.raises(AttributeError):
        cli.main(["serve", folder, "--port", "0"])
    assert seen == [Settings()]
