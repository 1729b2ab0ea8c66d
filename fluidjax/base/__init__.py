"""What a Scope holds and where: values, scopes, places, enumerations, flags, errors."""
