"""Waiting for all trainers."""

from fluidjax.base.unbuilt import unbuilt

check_all_trainers_ready = unbuilt(__name__, "check_all_trainers_ready")
