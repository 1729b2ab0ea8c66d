"""Programs, variables, scopes and what writes them."""
