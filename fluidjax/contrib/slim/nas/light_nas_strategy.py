"""Searching for the best network within limits of flops and latency."""

from __future__ import annotations

import logging
from typing import Any

from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.core.strategy import Strategy
from fluidjax.contrib.slim.nas.controller_server import ControllerServer
from fluidjax.contrib.slim.nas.lock import free
from fluidjax.contrib.slim.nas.search_agent import SearchAgent
from fluidjax.contrib.slim.searcher import SAController
from fluidjax.executor import Executor
from fluidjax.log_helper import get_logger

__all__ = ["ControllerServer", "LightNASStrategy", "SearchAgent"]  # the package adds to this list in 1.8.5

_logger = get_logger(__name__, logging.INFO, fmt="LightNASStrategy-%(asctime)s-%(levelname)s: %(message)s")
_ONE_SERVER = "./slim_LightNASStrategy_controller_server.socket"  # whoever has it locked is the host's server
_TRIES = 100
_NOT_KEPT = ("_search_agent", "_server", "_server_file")


class LightNASStrategy(Strategy):
    """Tries networks of the compressor's ``search_space``: each is trained for ``retrain_epoch`` epochs, and its
    metric is the controller's reward, or 0 beyond the limits.

    Args:
        controller: proposes tokens.
        end_epoch: the last epoch of the search.
        target_flops, target_latency: limits; a latency of 0 is none.
        retrain_epoch: see above; 0: no training.
        metric_name: the output of the evaluation to take.
        server_ip, server_port: where the controller is: 127.0.0.1 unless told otherwise.
        is_server: serve the controller from here, if no other process does in this folder.
        max_client_num, search_steps, key: see ControllerServer.
    """

    def __init__(
        self,
        controller: SAController | None = None,
        end_epoch: int = 1000,
        target_flops: float = 629145600,
        target_latency: float = 0,
        retrain_epoch: int = 1,
        metric_name: str = "top1_acc",
        server_ip: str | None = None,
        server_port: int = 0,
        is_server: bool = False,
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str = "light-nas",
    ):
        super().__init__(0, end_epoch)
        self._controller: Any = controller
        self._max_flops = target_flops
        self._max_latency = target_latency
        self._retrain_epoch = retrain_epoch
        self._metric_name = metric_name
        self._server_ip = server_ip or "127.0.0.1"
        self._server_port = server_port
        self._is_server = is_server
        self._max_client_num = max_client_num
        self._search_steps = search_steps
        self._key = key
        self._current_tokens: list[int] = []
        self._server: ControllerServer | None = None
        self._server_file: Any = None
        self._search_agent: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the connections."""
        return {name: value for name, value in super().__getstate__().items() if name not in _NOT_KEPT}

    def on_compression_begin(self, context: Context) -> None:
        """Begin the search, and serve it if asked."""
        self._current_tokens = context.search_space.init_tokens()
        self._controller.reset(context.search_space.range_table(), self._current_tokens, None)
        if self._is_server:
            self._serve()
        self._search_agent = SearchAgent(self._server_ip, self._server_port, key=self._key)

    def on_compression_end(self, context: Context) -> None:
        """End the server, if it is here."""
        if self._server is not None:
            self._server.close()
            self._server_file.close()

    def on_epoch_begin(self, context: Context) -> None:
        """Make the network of the tokens to try, or of the first ones after them that keep the limits."""
        if not (context.epoch_id <= self.end_epoch and self._turn(context.epoch_id)):
            return
        smallest: tuple[float, list[int]] | None = None
        for _ in range(_TRIES):
            startup, train, test, _, _, train_reader, eval_reader = context.search_space.create_net(
                self._current_tokens
            )
            context.eval_graph.program = test
            if self._within_limits(context):
                break
            tried = context.eval_graph.flops(), self._current_tokens
            smallest = tried if smallest is None else min(smallest, tried)
            self._current_tokens = self._controller.next_tokens(smallest[1])
        context.train_reader, context.eval_reader = train_reader, eval_reader
        Executor(context.place).run(startup, scope=context.scope)
        context.optimize_graph.program = train
        context.optimize_graph.compile()
        context.skip_training = self._retrain_epoch == 0

    def on_epoch_end(self, context: Context) -> None:
        """Tell the controller the reward, and ask it for the next tokens."""
        if context.epoch_id < self.end_epoch and self._turn(context.epoch_id + 1):
            reward = context.eval_results[self._metric_name][-1] if self._within_limits(context) else 0.0
            _logger.info(f"reward: {reward}; flops: {context.eval_graph.flops()}; tokens: {self._current_tokens}")
            self._current_tokens = self._next(reward)

    def _next(self, reward: float) -> list[int]:
        try:
            return self._search_agent.update(self._current_tokens, reward)
        except ConnectionError:
            if self._search_steps is None:
                raise
            _logger.info(f"the search of {self._search_steps} steps is over")
            return self._current_tokens

    def _within_limits(self, context: Context) -> bool:
        """Whether the network to evaluate keeps the limits."""
        flops, program = context.eval_graph.flops(), context.eval_graph.program
        latency = context.search_space.get_model_latency(program) if self._max_latency > 0 else 0
        _logger.info(f"try {self._current_tokens} with latency {latency} flops {flops}")
        return flops <= self._max_flops and latency <= self._max_latency

    def _turn(self, epoch: int) -> bool:
        return self._retrain_epoch == 0 or epoch % self._retrain_epoch == 0

    def _serve(self) -> None:
        self._server_file = open(_ONE_SERVER, "a")  # noqa: SIM115 - locked as long as the server lives
        if not free(self._server_file):
            return
        address = self._server_ip, self._server_port
        self._server = ControllerServer(self._controller, address, self._max_client_num, self._search_steps, self._key)
        self._server.start()
        self._server_port = self._server.port()
