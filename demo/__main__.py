"""Train, save, and predict in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from demo.train import train

OUTPUT, REQUIRED = Path("demo_output"), 0.97


def main() -> None:
    """Run the demo; fails when the net has not learned."""
    model = OUTPUT / "digits_model"
    model.mkdir(parents=True, exist_ok=True)
    accuracy = train(model)
    print(f"test accuracy {accuracy:.4f}; saved as a Paddle inference model in {model}")
    if accuracy < REQUIRED:
        sys.exit(f"the net should reach {REQUIRED:.0%} on the test digits")
    subprocess.run([sys.executable, "-m", "demo.predict", str(model)], check=True)


if __name__ == "__main__":
    main()
