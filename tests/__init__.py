"""The tests. With FLUIDJAX_TEST_PLACE=accelerator whatever they run at CPUPlace runs on the first accelerator."""

import os

if os.environ.get("FLUIDJAX_TEST_PLACE") == "accelerator":
    from fluidjax.base import places
    from lowering import Runner

    places.CPUPlace._jax_device = lambda self: places._accelerators()[0]  # type: ignore[method-assign]
    # Harnesses that call rules themselves name no platform: it is the one where their arrays are.
    (Runner.__init__.__kwdefaults__ or {})["platform"] = places._accelerators()[0].platform
