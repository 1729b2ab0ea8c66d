"""From Python to a static program: ``if``, ``for``, ``while`` etc. on variables become branches and loops.

==============  ================================================================================================
source.py       a function's syntax tree, and a function from a changed tree with the same globals, closure and lines
jumps.py        break, continue and return, as conditions
symbols.py      what statements assign, change and read
statements.py   if, while, for, assert become calls of the functions in ``staged``
expressions.py  and, or, not, calls, conditional expressions etc.: likewise
convert.py      which functions are converted, each of them once
staged.py       the functions that converted code calls; each decides at run time, by the values it finds
values.py       what branches and loops carry: leaves, numbers turned into variables, names without a value
branches.py     an ``if`` on a variable
loops.py        a ``while`` or ``for`` on a variable
sequences.py    ranges, lists and zips with a variable length
builtins.py     len, print, int, range etc. of variables
==============  ================================================================================================

Nothing is decided from the source alone: each statement becomes a call that inspects its condition at run time. A
Python value runs Python's statement; a variable of the program under construction creates the program's.
"""
