"""Waiting for all trainers."""

from fluidjax.unbuilt import unbuilt

check_all_trainers_ready = unbuilt(__name__, "check_all_trainers_ready")
