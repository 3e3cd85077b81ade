"""Ray actors that work for a search, on this machine or on those of a cluster.

Ray is imported here alone, and only for whoever asks for it. What it is sent is small:
requests, answers, and a configuration that names models by their folders; task vectors
are never put into its object store.
"""

from __future__ import annotations

import importlib
import os
import secrets
import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mergekit_map.errors import ConfigError
from mergekit_map.steps.processes import Died, refuse_ended, visible_gpus

READY = "ready"  # said once by each actor, when all is imported
_STORE = 128 * 2**20  # bytes; Ray would take a third of the memory


class Actor:
    """What Ray runs: a worker that answers one request after the other."""

    def __init__(self) -> None:
        os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        from mergekit_map.steps.serving import Serving, silence

        silence()
        self._serving = Serving()

    def ready(self) -> str:
        """Say that all is imported."""
        return READY

    def answer(self, request: Any) -> Any:
        """Do what is asked."""
        return self._serving.answer(request)


class RayActors:
    """So many actors, on the cluster that is there or on one for as long as this lasts.

    A context. A cluster is there where ``RAY_ADDRESS`` names one or where this machine
    is part of one.

    Args:
        count: Of actors; by default one for each GPU, or for each machine without.
    """

    def __init__(self, count: int | None = None):
        self.asked = "ray" if count is None else f"ray:{count}"  # on a command line
        self._told: deque[tuple[int, Any]] = deque()
        self._asked: dict[Any, tuple[int, bool]] = {}  # whose answer, and if its first
        self._own_token = False
        self._ray = _imported()
        threading.Thread(target=_import_what_searches).start()
        self._leaves = not self._ray.is_initialized()  # in the end
        self._joined = not self._leaves or self._join()
        if not self._joined:
            self._start(count or max(1, len(visible_gpus())))
        resources = self._ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        self.count = count or gpus or nodes
        self._threads = max(1, int(resources.get("CPU", 1)) // self.count)
        made = self._ray.remote(
            num_cpus=1,
            num_gpus=gpus_of_each(gpus, self.count),
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )(Actor)
        self._actors = [made.remote() for _ in range(self.count)]
        for index in range(self.count):
            self.restart(index)

    def __enter__(self) -> RayActors:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.clear()
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._leaves:
            self._ray.shutdown()
            self._leaves = False
        self._forget_token()

    def _forget_token(self) -> None:
        if self._own_token:
            del os.environ["RAY_AUTH_TOKEN"]
            self._own_token = False

    def send(self, index: int, request: Any) -> None:
        """Ask one of them, who answers nothing else now."""
        refuse_ended(self._actors)
        if self._joined and hasattr(request, "threads"):
            # Those of this machine say nothing of others.
            request = replace(request, threads=self._threads)
        self._asked[self._actors[index].answer.remote(request)] = index, False

    def hear(self, seconds: float | None = None) -> tuple[int, Any] | None:
        """Wait for an answer, or a ``Died``, and who it is of; None after some time."""
        refuse_ended(self._actors)
        while not self._told:
            done, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=seconds)
            for reference in done:
                self._take(reference)
            if seconds is not None:
                break
        return self._told.popleft() if self._told else None

    def restart(self, index: int) -> None:
        """Hear when an actor is there; one that died is started again by Ray."""
        self._asked[self._actors[index].ready.remote()] = index, True

    def _take(self, reference: Any) -> None:
        index, first = self._asked.pop(reference)
        errors = self._ray.exceptions
        try:
            self._told.append((index, self._ray.get(reference)))
        except errors.RayTaskError:
            raise  # of this program
        except errors.RayError as error:
            if first and isinstance(error, errors.ActorUnavailableError):
                self.restart(index)  # it is being started
            else:
                self._told.append((index, Died(_how(error))))

    def _join(self) -> bool:
        """Join the cluster that is there, if there is one."""
        try:
            self._ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            if "RAY_ADDRESS" in os.environ:
                raise ConfigError(
                    f"Ray cannot be reached at {os.environ['RAY_ADDRESS']}, which "
                    f"RAY_ADDRESS names: {error}"
                ) from None
            return False
        except self._ray.exceptions.AuthenticationError as error:
            raise ConfigError(
                f"Ray does not let this program in: {_first_line(error)}; say where "
                "the token of the cluster is: RAY_AUTH_TOKEN_PATH=FILE"
            ) from None
        return True

    def _start(self, count: int) -> None:
        """Start a cluster of this machine, which nobody else has the token of."""
        if "RAY_AUTH_TOKEN" not in os.environ:
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
            self._own_token = True
        try:
            self._ray.init(
                address="local",
                num_cpus=count,
                object_store_memory=_STORE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except Exception as error:  # of many kinds
            self._ray.shutdown()
            self._forget_token()
            raise ConfigError(
                f"Ray cannot be started on this machine: {_first_line(error)}; search "
                "again if the machine was busy, or with --workers N, without Ray"
            ) from error


def gpus_of_each(gpus: int, count: int) -> float:
    """Share GPUs among actors: whole ones, or a part of one where there are too few."""
    return gpus // count if count <= gpus else int(1e4 * gpus / count) / 1e4


def _imported() -> Any:
    # Read by Ray when it is imported.
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


def _import_what_searches() -> None:
    """Import what takes seconds, while Ray starts and this process would only wait."""
    with suppress(Exception):  # which is raised again where it is used
        importlib.import_module("mergekit_map.steps.search")


def _how(error: Exception) -> str:
    return f"was lost ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.strip().splitlines()[0].rstrip(".")
