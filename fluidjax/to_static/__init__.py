"""From Python to a static program: ``if``, ``for``, ``while`` ... on variables become branches and loops.

==============  ================================================================================================
source.py       a function's syntax tree, and the function of a changed tree: same globals, closure and lines
jumps.py        break, continue and return, as conditions
symbols.py      what statements assign, change and read
statements.py   if, while, for, assert: calls of the functions in ``staged``
expressions.py  and, or, not, calls, conditional expressions ...: likewise
convert.py      which functions are converted, each once
staged.py       what converted code calls, one name for each; it decides at run time, by the values it finds
values.py       what branches and loops carry: leaves, numbers that became variables, names that have no value
branches.py     an ``if`` on a variable
loops.py        a ``while`` or ``for`` on a variable
sequences.py    ranges, lists and zips whose length is a variable
builtins.py     len, print, int, range ... of variables
==============  ================================================================================================

Nothing is decided by reading the source: each statement becomes a call that looks at its condition when it runs. A
Python value runs Python's statement; a variable of the program being written, that of the program.
"""
