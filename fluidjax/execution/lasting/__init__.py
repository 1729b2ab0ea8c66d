"""What lasts from one run to the next: state on the device, and memory that feeds are copied to."""
