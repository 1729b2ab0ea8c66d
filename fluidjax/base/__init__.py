"""Foundations: values, scopes, places, enumerations, flags, errors."""
