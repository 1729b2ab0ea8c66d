"""64-bit types are turned on in one way, which an interrupt cannot leave half done."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_one_place_turns_64_bit_types_on():
    found = [
        str(path.relative_to(ROOT))
        for package in ("lowering", "fluidjax")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "with jax.enable_x64(" in path.read_text() and path.name != "x64.py"
    ]
    assert found == []
