"""Workers that are Ray actors, on this machine or on those of a cluster.

Ray is imported only here, and only when it is used. Messages are small: tasks, answers,
and a configuration that names models by their folders. Task vectors never enter Ray's
object store.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

from mergekit_map.errors import ConfigError, first_line
from mergekit_map.types import MeasurementRequest
from mergekit_map.workers.pool import Answer, Opening, WorkerPool, visible_gpus

_STORE = 128 * 2**20  # bytes; Ray would take a third of the memory


class Actor:
    """The class that Ray runs: a worker that answers one request after the other."""

    def __init__(self, opening: Opening):
        self._opening = opening

    def answer(self, request: MeasurementRequest) -> Answer:
        """Open the models, unless they are open, and measure."""
        from mergekit_map.workers import worker_main

        return worker_main.answer(self._opening, request)


class RayWorker:
    """A worker that is an actor, which ``make`` starts for a project."""

    def __init__(self, ray: Any, make: Callable[[Opening], Any]):
        self.dies_with: type[Exception] = ray.exceptions.RayError
        self._ray = ray
        self._make = make
        self._actor: Any = None

    def ask(self, opening: Opening, request: MeasurementRequest) -> Future[Answer]:
        """Return the future of an answer; start an actor if there is none."""
        if self._actor is None:
            self._actor = self._make(opening)
        future: Future[Answer] = self._actor.answer.remote(request).future()
        return future

    def end(self) -> None:
        """End the actor, dead or alive."""
        if self._actor is not None:
            self._ray.kill(self._actor)
        self._actor = None


@contextmanager
def ray_pool(count: int | None = None) -> Iterator[WorkerPool]:
    """Yield actors on an existing cluster, or on one that ends with them.

    A cluster exists where ``RAY_ADDRESS`` names one or where this machine is part of
    one. There are ``count`` actors, or one for each GPU, or for each machine without
    GPUs. Raises ConfigError if Ray is not installed, or cannot be reached or started.
    """
    ray = _import_ray()
    handler = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        if not (has_joined := ray.is_initialized()):
            stack.callback(ray.shutdown)
            has_joined = _join(ray)
        if not has_joined:
            _start(ray, count or max(1, len(visible_gpus())), stack)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # which Ray has replaced
        resources = ray.cluster_resources()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = [int(node.get("GPU", 0)) for node in nodes]
        count = count or sum(gpus) or len(nodes)
        actor = ray.remote(
            num_cpus=int(resources.get("CPU", 0) >= count),  # else they wait for ever
            num_gpus=gpus_of_each(gpus, count),
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )(Actor)
        # The threads of this machine say nothing of others.
        threads = max(1, int(resources.get("CPU", 1)) // count) if has_joined else None
        handles = [RayWorker(ray, actor.remote) for _ in range(count)]
        yield stack.enter_context(WorkerPool(handles, threads))


def gpus_of_each(nodes: Sequence[int], count: int) -> float:
    """Share the GPUs of nodes among actors: whole ones of a node, or a part of one."""
    gpus = sum(nodes)
    if 0 < gpus < count:
        return int(1e4 / math.ceil(count / gpus)) / 1e4
    fitting = (k for k in range(gpus, 0, -1) if sum(g // k for g in nodes) >= count)
    return next(fitting, 0)


def _import_ray() -> Any:
    # Ray reads these when it is imported.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "--workers ray needs Ray: pip install 'mergekit-map[ray]', or search with "
            "--workers N, which needs nothing else"
        ) from None
    return ray


def _join(ray: Any) -> bool:
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ray.exceptions.AuthenticationError) as error:
        if isinstance(error, ConnectionError) and address is None:
            return False
        raise ConfigError(
            f"the Ray cluster ({address or 'of this machine'}) cannot be joined: "
            f"{first_line(error)}; check RAY_ADDRESS, and that RAY_AUTH_TOKEN_PATH "
            "names the cluster's token"
        ) from None
    return True


def _start(ray: Any, count: int, stack: ExitStack) -> None:
    """Start a cluster on this machine, with a token that only this process has."""
    if "RAY_AUTH_TOKEN" not in os.environ:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        stack.callback(os.environ.pop, "RAY_AUTH_TOKEN")
    try:
        ray.init(
            address="local",
            num_cpus=count,
            object_store_memory=_STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:  # of many kinds
        raise ConfigError(
            f"Ray cannot be started on this machine: {first_line(error)}; search "
            "again if the machine was busy, or with --workers N, without Ray"
        ) from error
