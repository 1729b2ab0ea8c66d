"""Paddle's file formats: how they are parsed, checked and written."""
