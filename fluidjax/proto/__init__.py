"""``fluid.proto``: the messages that programs are made of, where Fluid keeps them; generated from ``proto/``."""
