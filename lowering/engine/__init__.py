"""From a program's blocks to values: planning, calling rules, shape inference.

``runner`` lowers a block, ``call`` calls one op's rule, ``dataflow`` tells what ops read and write, ``plan`` how a
block is cut, ``align`` what happens where ragged values of different capacities meet. Rooms: ``shapes`` (what is known
before anything runs), ``gradients`` (which ops compute one), ``parallel`` (a program for several devices).
"""
