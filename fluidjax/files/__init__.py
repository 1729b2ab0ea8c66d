"""Paddle's file formats: parsing, validation and writing."""
