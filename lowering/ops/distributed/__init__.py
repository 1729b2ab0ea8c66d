"""What devices exchange."""
