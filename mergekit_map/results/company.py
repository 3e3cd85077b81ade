"""Who else is at work on a run folder: shards show each other that they are alive.

By files alone: each shard counts up in one of its own. Clocks of two machines need not
agree, since only changes are looked at, by the clock of whoever looks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from mergekit_map.results.shard_logs import Shard

_BEAT = 2.0  # seconds from one sign of life to the next
_SILENCE = 60.0  # seconds after which a shard is taken to be gone
# Seconds after which who waits himself is not waited for: the two see different things.
_STUCK = 30.0


@dataclass(frozen=True)
class _Sign:
    """What a shard wrote last."""

    count: str
    phase: str  # a number, and whether it waits

    @classmethod
    def read(cls, text: str) -> _Sign:
        """Read it."""
        count, _, phase = text.partition(" ")
        return cls(count, phase.strip())

    @property
    def waits(self) -> bool:
        """Tell whether it waits for others."""
        return self.phase.endswith("waiting")


@dataclass(frozen=True)
class _Heard:
    """What was heard of another shard, and when."""

    sign: _Sign | None
    alive: float  # when it was first looked for, or its sign changed
    phase: float  # when its phase changed
    ever: bool = False  # whether it was alive while somebody looked


class Company:
    """Shows that a shard is alive, and hears of others; a context while it runs."""

    def __init__(
        self,
        run: Path,
        shard: Shard,
        *,
        silence: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._run, self._shard = run, shard
        self._silence = _SILENCE if silence is None else silence
        self._clock = clock
        self._heard: dict[Shard, _Heard] = {}
        self._count, self._phase, self._waits = 0, 0, False
        self._writing, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Company:
        for other in self._shard.others:
            self._hear(other)
        self._show()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._file_of(self._shard).unlink(missing_ok=True)

    @property
    def others(self) -> list[Shard]:
        """List the other shards."""
        return self._shard.others

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Show that this shard waits for others."""
        self._turn(waits=True)
        try:
            yield
        finally:
            self._turn(waits=False)

    def will_deliver(self, other: Shard) -> bool:
        """Tell whether it makes sense to wait for another shard."""
        heard, now = self._hear(other), self._clock()
        if heard.sign is None:
            # Who took the sign away has left; who was never there may be on the way.
            return not heard.ever and now - heard.alive < self._silence
        if now - heard.alive >= self._silence:
            return False
        return not heard.sign.waits or now - heard.phase < _STUCK

    def was_there(self, other: Shard) -> bool:
        """Tell whether a shard was alive while this one ran."""
        return self._hear(other).ever

    def _hear(self, other: Shard) -> _Heard:
        now, sign = self._clock(), self._read(other)
        heard = self._heard.get(other)
        if heard is None:
            heard = _Heard(sign, now, now)
        elif sign is None and heard.sign is not None:
            heard = _Heard(None, now, now, heard.ever)
        elif sign is not None and sign != heard.sign:
            same = heard.sign is not None and sign.phase == heard.sign.phase
            heard = _Heard(sign, now, heard.phase if same else now, ever=True)
        self._heard[other] = heard
        return heard

    def _turn(self, *, waits: bool) -> None:
        with self._writing:
            self._phase, self._waits = self._phase + 1, waits
        self._show()

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            self._show()

    def _show(self) -> None:
        with self._writing:
            self._count += 1
            state = "waiting" if self._waits else "measuring"
            # A process that was killed and started again must not look like its ghost.
            count = f"{time.time_ns()}.{self._count}"
            mine = self._file_of(self._shard)
            beside = mine.with_name(f"{mine.name}.new")
            with contextlib.suppress(OSError):  # what a full disk stops is said by logs
                beside.write_text(f"{count} {self._phase} {state}\n", encoding="utf-8")
                beside.replace(mine)

    def _read(self, shard: Shard) -> _Sign | None:
        try:
            return _Sign.read(self._file_of(shard).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return None

    def _file_of(self, shard: Shard) -> Path:
        return self._run / f"{shard.log_name}.alive"
