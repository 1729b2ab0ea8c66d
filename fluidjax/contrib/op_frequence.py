"""The frequencies of ops and of pairs of ops in a Program."""

from __future__ import annotations

from collections import Counter

from fluidjax.framework import Program

__all__ = ["op_freq_statistic"]

Counts = list[tuple[str, int]]


def op_freq_statistic(program: Program) -> tuple[Counts, Counts]:
    """Count the op types in the first block, and the pairs "producer->reader"; parameters are ignored.

    Paddle 1.8.5 has the same function, but it only works with Python 2.

    Args:
        program: a Program.

    Returns:
        ([(op type, count)], [("a->b", count)]), in order of decreasing count. An op is counted if it writes
        anything but parameters; the producer of a variable is the last preceding op that wrote it.

    Raises:
        TypeError: not a Program.
    """
    if not isinstance(program, Program):
        raise TypeError(
            f"op_freq_statistic takes a Program, received {type(program)}. Pass fluid.default_main_program()."
        )
    block = program.global_block()
    parameters = {param.name for param in block.all_parameters()}
    single: Counter[str] = Counter()
    pairs: dict[str, list[str]] = {}
    producer: dict[str, str] = {}
    for op in block.ops:
        for name in op.input_arg_names:
            if name in producer and name not in parameters:
                pairs.setdefault(op.type, []).append(f"{producer[name]}->{op.type}")
        if any(name not in parameters for name in op.output_arg_names):
            single[op.type] += 1
        producer.update(dict.fromkeys(op.output_arg_names, op.type))
    adjacent = Counter(pair for group in pairs.values() for pair in group)
    return single.most_common(), adjacent.most_common()
