"""Training steps that are known as a whole, from the call of a layer to the update of its parameters.

``learning`` finds them among the batches that recur and describes them as ``steps`` (``later``: the ops between the
call and the backward pass; ``frames``: how the block takes its state). A step that begins again is ``promised``:
its variables hold ``stand_ins`` for their values, and ``resumed`` records what has come of it if somebody looks.
``together`` holds the variables that it replaces.
"""
