"""Calls, backward passes and updates that come again, without their Python."""
