"""From a program's blocks to values: planning, calling rules, shape inference, random bits.

``runner`` lowers a block, ``call`` calls one op's rule, ``dataflow`` tells what ops read and write, ``plan`` how a
block is cut. Rooms: ``sizes`` (numbers of rows that a trace knows), ``draws`` (random numbers), ``shapes`` (what is
known before anything runs), ``gradients`` (which ops compute one), ``parallel`` (a program for several devices).
"""
