"""Dims that vary from batch to batch, with spare room: padded lengths, histories, sizes of graphs.

A ``Wide`` value has axes of which only the first positions are used; the run knows how many. Ops run on the array:

- an op that works position by position runs unchanged: its results at unused positions are meaningless;
- one that combines positions (a sum, a matrix product, a softmax) first gets its neutral element at the unused ones;
- a gradient op gets zeros there in the gradients that it reads; its forward inputs are those its forward op had.

So the only invariant is that unused positions are finite where all others are, and copies of what is. An op's rule
(``rules``) tells which axes its results have, and what it combines; an op without a rule, or whose rule refuses,
gets the true sizes, and is compiled for each size.

``calls`` runs an op so, and ``call`` is what its rule sees of it; ``meet`` pairs axes whose sizes come from different
places; ``joined`` puts parts together; ``shapes``, ``along``, ``windows``, ``norms``, ``losses`` and ``boxes`` are
the rules of ops of a kind; ``given`` reads numbers that ops get as values; ``fills`` are neutral elements; ``sizes``
answer those who ask for sizes, ``followed`` those whose numbers come from nothing else; ``widen`` finds padded
batches of sequences that may be wider than their longest, and ``spare`` tells a run what may have room at all. Which
axes use the same number of positions, the labels of ``lowering.sizes`` say.
"""
