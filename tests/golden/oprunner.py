"""Running one operator recording and judging what came out.

Judged are the outputs that the recording defines: not the ones named in ``unstable_vars``, not ``no_check`` ones, not
tensors without memory, and not the intermediate outputs (by the operator's proto) that a gradient test or a test
without an expectation for them left behind; those are a private matter between a kernel and its gradient kernel.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.golden.recordings import OpCase, Variable, op_cases
from tests.golden.values import Tensor, Value, Verdict, compare, compare_random, worst
from tests.spec import op_protos

# Runs a serialized ProgramDesc on values by name; returns the values of the asked names (absent: not written).
Backend = Callable[[bytes, dict[str, Value], list[str]], dict[str, Value]]


@functools.cache
def intermediate_slots(op_type: str) -> frozenset[str]:
    """Output slots that the proto marks as intermediate."""
    slots = op_protos().get(op_type, {}).get("outputs", [])
    return frozenset(s["slot"] for s in slots if s.get("intermediate"))


@dataclass
class Outcome:
    """The verdict on one case."""

    case: OpCase
    verdict: Verdict
    trace: str = ""

    @property
    def passed(self) -> bool:
        """Whether everything that is judged agrees."""
        return not self.verdict.problem


def judged_outputs(case: OpCase) -> list[Variable]:
    """The outputs of a case that have to be reproduced."""
    skip = set(case.record["unstable_vars"])
    private = intermediate_slots(case.op_type)
    judged = []
    for v in case.variables("outputs"):
        declared = v.record.get("declared") and not case.is_grad
        if v.value is None or v.name in skip or v.record.get("no_check") or (v.slot in private and not declared):
            continue
        judged.append(v)
    return judged


def judge(case: OpCase, got: dict[str, Value]) -> Verdict:
    """Compare the outputs, the loss and the gradients of a case with the recorded ones."""
    draws = set(case.record["random_vars"]) if case.record["random"] else set()
    lods = {v.name: [list(x) for x in getattr(v.value, "lod", [])] for v in case.variables("inputs")}
    verdicts, private = [], intermediate_slots(case.op_type)
    for v in judged_outputs(case):
        check: Any = compare_random if v.name in draws else compare
        if v.slot in private and isinstance(v.value, Tensor):
            # Paddle's kernels keep their batch order in the LoD of intermediate outputs.
            check = functools.partial(compare, lods=[getattr(got.get(v.name), "lod", [])])
        verdicts.append(_named(v.name, check(got.get(v.name), v.value)))  # type: ignore[arg-type]
    for v in case.variables("grads"):
        check = compare_random if v.name in draws else functools.partial(compare, lods=[lods[v.record["input"]]])
        verdicts.append(_named(v.name, check(got.get(v.name), v.value)))  # type: ignore[arg-type]
    return worst(verdicts)


def _named(name: str, verdict: Verdict) -> Verdict:
    return Verdict(f"{name}: {verdict.problem}" if verdict.problem else "", verdict.error)


def run_case(case: OpCase, backend: Backend) -> Outcome:
    """Run one case; an error of the run is a failed case, with its traceback."""
    values = {v.name: v.value for v in case.variables("inputs") if v.value is not None}
    wanted = [v.name for v in judged_outputs(case)] + [v.name for v in case.variables("grads")]
    try:
        got = backend(case.program, values, wanted)
        return Outcome(case, judge(case, got))
    except Exception as error:  # the report names it; a runner that stops at the first broken op is of no use
        text = f"{type(error).__name__}: {error}".strip().replace("\n", " ")
        return Outcome(case, Verdict(text, float("inf")), traceback.format_exc())


def run_op(op_type: str, backend: Backend) -> list[Outcome]:
    """Run all cases of one operator."""
    return [run_case(case, backend) for case in op_cases(op_type)]
