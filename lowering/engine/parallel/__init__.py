"""A program as that of several devices: what each computes, and what they sum."""
