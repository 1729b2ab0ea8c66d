"""Utilities for training over many days."""

from __future__ import annotations

import os
import re
from typing import Any, NoReturn

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.base.unbuilt import NotBuiltError
from fluidjax.executor import global_scope
from fluidjax.framework import Program
from fluidjax.incubate.fleet.parameter_server import pslib
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import fleet as fleet_transpiler
from fluidjax.incubate.fleet.utils import global_metrics, utils
from fluidjax.incubate.fleet.utils.donefiles import Donefiles
from fluidjax.incubate.fleet.utils.hdfs import HDFSClient as HDFSClient

__all__ = ["FleetUtil"]

_MODELS_OF_PSLIB = frozenset(
    "load_fleet_model_one_table load_fleet_model save_fleet_model load_model save_model save_batch_model"
    " save_delta_model save_xbox_base_model save_cache_model save_cache_base_model pull_all_dense_params"
    " save_paddle_inference_model save_paddle_params".split()
)


class FleetUtil(Donefiles):
    """Printing, measuring and recording by the workers of a fleet.

    Methods that save and load the models of pslib's servers are not implemented: they raise NotBuiltError.

    Args:
        mode: "transpiler" for the fleet of transpiled programs; "pslib" for pslib's, which is not implemented: with it,
            methods that need a worker's index raise NotBuiltError.

    Raises:
        ValueError: any other mode.
    """

    def __init__(self, mode: str = "pslib") -> None:
        if mode not in ("pslib", "transpiler"):
            raise ValueError(f'FleetUtil: expected mode "pslib" or "transpiler", received {mode!r}; pass one of them')
        super().__init__(pslib.fleet if mode == "pslib" else fleet_transpiler)

    def __getattr__(self, name: str) -> Any:
        if name not in _MODELS_OF_PSLIB:
            raise AttributeError(f"'FleetUtil' object has no attribute {name!r}")
        return lambda *args, **kwargs: _refuse(name)

    def set_zero(self, var_name: str, scope: Scope | None = None, place: Any = None, param_type: str = "int64") -> None:
        """Fill a variable with zeros of a dtype, keeping its size.

        Args:
            var_name: its name.
            scope: the scope that holds it; the global scope if None.
            place: where to place the zeros; the host if None.
            param_type: their dtype.
        """
        tensor = _in(scope).var(var_name).get_tensor()
        tensor.set(np.zeros(tensor.shape(), param_type), place or CPUPlace())

    def print_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        print_prefix: str = "",
    ) -> None:
        """Print on worker 0 what ``get_global_auc`` returns."""
        self.rank0_print(f"{print_prefix} global auc = {self.get_global_auc(scope, stat_pos, stat_neg)}")

    def get_global_auc(
        self, scope: Scope | None = None, stat_pos: str = "_generated_var_2", stat_neg: str = "_generated_var_3"
    ) -> float | None:
        """The area under the ROC curve, from the counts of ``layers.auc`` on all workers.

        Args:
            scope: the scope that holds the counts; the global scope if None.
            stat_pos: name of the counts of label 1, [1, n].
            stat_neg: of label 0.

        Returns:
            The area; None, with a message printed, if the scope lacks one of them.

        Raises:
            RuntimeError: there are several workers, not connected by the role maker.
        """
        if self._lacks(scope, {stat_pos: "auc bucket", stat_neg: "auc bucket"}):
            return None
        return global_metrics.area_under_curve(self._total_of(scope, stat_pos)[0], self._total_of(scope, stat_neg)[0])

    def get_global_metrics(
        self,
        scope: Scope | None = None,
        stat_pos_name: str = "_generated_var_2",
        stat_neg_name: str = "_generated_var_3",
        sqrerr_name: str = "sqrerr",
        abserr_name: str = "abserr",
        prob_name: str = "prob",
        q_name: str = "q",
        pos_ins_num_name: str = "pos",
        total_ins_num_name: str = "total",
    ) -> list[Any]:
        """Metrics of a click model, from ``layers.auc`` and ``contrib.layers.ctr_metric_bundle`` on all workers.

        Args:
            scope: the scope that holds their variables; the global scope if None.
            stat_pos_name: name of the counts of label 1, [1, n].
            stat_neg_name: of label 0.
            sqrerr_name: name of the sum of squared errors, [1].
            abserr_name: of absolute errors.
            prob_name: of predictions.
            q_name: of q values.
            pos_ins_num_name: of clicks.
            total_ins_num_name: of examples.

        Returns:
            AUC, bucket error, mean absolute error, root mean squared error, actual and predicted click-through rate,
            their ratio, the mean q value, and the number of examples; nine times None if a variable is missing.

        Raises:
            RuntimeError: there are several workers, not connected by the role maker.
        """
        sums = {
            "sqrerr": sqrerr_name,
            "abserr": abserr_name,
            "prob": prob_name,
            "q": q_name,
            "pos": pos_ins_num_name,
            "total": total_ins_num_name,
        }
        keys = {"pos": "pos_ins_num_name", "total": "total_ins_num_name"}
        told = {name: f"{keys.get(key, key + '_name')}={name}" for key, name in sums.items()}
        if self._lacks(scope, {stat_pos_name: "auc bucket", stat_neg_name: "auc bucket", **told}):
            return [None] * 9
        positives, negatives = (self._total_of(scope, name)[0] for name in (stat_pos_name, stat_neg_name))
        totals = {key: self._total_of(scope, name)[0] for key, name in sums.items()}
        return global_metrics.figures(positives, negatives, totals)

    def print_global_metrics(
        self,
        scope: Scope | None = None,
        stat_pos_name: str = "_generated_var_2",
        stat_neg_name: str = "_generated_var_3",
        sqrerr_name: str = "sqrerr",
        abserr_name: str = "abserr",
        prob_name: str = "prob",
        q_name: str = "q",
        pos_ins_num_name: str = "pos",
        total_ins_num_name: str = "total",
        print_prefix: str = "",
    ) -> None:
        """Print on worker 0, in one line, the result of ``get_global_metrics``."""
        names = (sqrerr_name, abserr_name, prob_name, q_name, pos_ins_num_name, total_ins_num_name)
        found = self.get_global_metrics(scope, stat_pos_name, stat_neg_name, *names)
        if found[0] is not None:
            line = (
                "%s global AUC=%.6f BUCKET_ERROR=%.6f MAE=%.6f RMSE=%.6f Actural_CTR=%.6f Predicted_CTR=%.6f COPC=%.6f"
                " MEAN Q_VALUE=%.6f Ins number=%s"
            )
            self.rank0_print(line % (print_prefix, *found))

    def _lacks(self, scope: Scope | None, names: dict[str, str]) -> bool:
        """Whether a scope lacks a variable, which is reported."""
        for name, told in names.items():
            if _in(scope).find_var(name) is None:
                self.rank0_print(f"not found {told}")
                return True
        return False

    def _total_of(self, scope: Scope | None, name: str) -> Any:
        return self._total(np.array(_in(scope).find_var(name).get_tensor()))

    def get_online_pass_interval(
        self, days: str, hours: str, split_interval: Any, split_per_pass: Any, is_data_hourly_placed: bool
    ) -> list[list[str]]:
        """The intervals of a day's data, grouped by pass: "hhmm" of each, or "hh" if data are stored by hour.

        Args:
            days: has no effect, as in Fluid.
            hours: those with data: "{0..23}", or numbers separated by spaces, of which the first and last count.
            split_interval: length of an interval in minutes.
            split_per_pass: number of intervals per pass; a remainder at the end of the day is dropped.
            is_data_hourly_placed: name only the hour.
        """
        shown = [int(number) for number in re.findall(r"\d+", hours)]
        step, size = int(split_interval), int(split_per_pass)
        times = [divmod(piece * step, 60) for piece in range(24 * 60 // step)]
        pieces = [
            f"{hour:02d}" if is_data_hourly_placed else f"{hour:02d}{minute:02d}"
            for hour, minute in times
            if shown[0] <= hour <= shown[-1]
        ]
        return [pieces[i : i + size] for i in range(0, len(pieces) - size + 1, size)]

    def program_type_trans(self, prog_dir: str, prog_fn: str, is_text: bool) -> str:
        """``utils.program_type_trans``."""
        return utils.program_type_trans(prog_dir, prog_fn, is_text)

    def draw_from_program_file(self, model_filename: str, is_text: bool, output_dir: str, output_filename: str) -> None:
        """Draw the global block of a program file; see ``utils.graphviz``."""
        self.draw_from_program(utils.load_program(model_filename, is_text), output_dir, output_filename)

    def draw_from_program(self, program: Program, output_dir: str, output_name: str) -> None:
        """Draw the global block of a program; see ``utils.graphviz``."""
        utils.graphviz(program.global_block(), output_dir, output_name)

    def check_two_programs(self, config: Any) -> bool:
        """``utils.check_pruned_program_vars`` of two files.

        Args:
            config: with the attributes ``train_prog_path``, ``is_text_train_program``, ``pruned_prog_path``,
                ``is_text_pruned_program``, and ``draw``: whether to draw the pruned program next to its file, as
                ``draw_out_name``.
        """
        pruned = utils.load_program(config.pruned_prog_path, config.is_text_pruned_program)
        if config.draw:
            self.draw_from_program(pruned, os.path.dirname(config.pruned_prog_path), config.draw_out_name)
        train = utils.load_program(config.train_prog_path, config.is_text_train_program)
        return utils.check_pruned_program_vars(train, pruned)

    def check_vars_and_dump(self, config: Any) -> list[Any]:
        """``utils.check_saved_vars_try_dump``.

        Args:
            config: with the attributes ``dump_model_dir``, ``dump_program_filename``, ``is_text_dump_program``,
                ``feed_config``, ``fetch_config``, ``batch_size`` and ``save_params_filename``.
        """
        return utils.check_saved_vars_try_dump(
            config.dump_model_dir,
            config.dump_program_filename,
            config.is_text_dump_program,
            config.feed_config,
            config.fetch_config,
            config.batch_size,
            config.save_params_filename,
        )

    def parse_program_proto(self, prog_path: str, is_text: bool, output_dir: str) -> None:
        """List the contents of a program file in ``output_dir``; see ``utils.parse_program``."""
        utils.parse_program(utils.load_program(prog_path, is_text), output_dir)


def _in(scope: Scope | None) -> Any:
    return global_scope() if scope is None else scope


def _refuse(name: str) -> NoReturn:
    raise NotBuiltError(
        explain(
            f"FleetUtil.{name} is not built in fluidjax",
            "models of transpiled programs",
            "those of pslib's servers",
            "save by fleet.save_persistables or fleet.save_inference_model, load by fleet.init_server",
        )
    )
