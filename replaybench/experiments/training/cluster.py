"""Run tasks on a Dask cluster; its workers need no folder in common with this machine."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from typing import TYPE_CHECKING, Any

from replaybench.data.errors import UserError
from replaybench.experiments.interruption import Interrupted
from replaybench.experiments.progress.round import Round
from replaybench.experiments.training.tasks import Finish, Job, Watch

if TYPE_CHECKING:
    from distributed import Client

_TICK = 0.2


def run_on_cluster(address: str, tasks: Sequence[Job], watch: Watch, finish: Finish) -> None:
    """Run tasks on the workers of the scheduler at an address; these report no progress.

    Raises:
        Interrupted: on Ctrl-C or SIGTERM.
        UserError: the extra is not installed, no scheduler answers, the cluster is lost, or a task raised it there.
    """
    futures: dict[Future[Any], str] = {}
    with _executor(address) as executor:
        try:
            for task in tasks:
                futures[executor.submit(task.function, *task.arguments, unwatched)] = task.key
            pending = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_TICK, return_when=FIRST_COMPLETED)
                faults = []
                for future in done:
                    try:
                        # Drop it at once: a cell from a cluster returns its whole buffer.
                        finish(futures.pop(future), _result(future))
                    except Exception as error:  # results of other tasks are stored first
                        faults.append(error)
                if faults:
                    raise faults[0]
        except BaseException as error:
            for future in futures:
                future.cancel()
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(error) from None
            raise


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except UserError as error:
        raise UserError(f"on a worker of the cluster: {error}") from error


def unwatched(_: Round) -> bool:
    """Ignore a round, and never ask to stop."""
    return True


def check_cluster(address: str) -> None:
    """Raise `UserError` unless a scheduler answers at an address."""
    with _client(address):
        pass


@contextlib.contextmanager
def _executor(address: str) -> Iterator[Executor]:
    try:
        with _client(address) as client, client.get_executor(pure=False) as executor:
            yield executor
    except Exception as error:
        if isinstance(error, CancelledError) or type(error).__module__.startswith("distributed"):
            raise UserError(
                f"the cluster gave up ({type(error).__name__}); finished cells are kept, see its scheduler's and "
                "workers' logs, then run again"
            ) from error
        raise


def _client(address: str) -> Client:
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
        from distributed.security import Security
    except ImportError:
        raise UserError("--cluster needs the extra: pip install 'replaybench[cluster]'") from None
    try:
        # A client that fails over an address leaves a traceback behind at exit.
        scheme, place = parse_address(address)
        get_backend(scheme)
        if scheme in ("tcp", "tls"):
            parse_host_port(place)
        if scheme in ("tls", "wss") and Security().get_connection_args("client").get("ssl_context") is None:
            raise ValueError("certificates are missing, which Dask's configuration names under distributed.comm.tls")
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(f"no Dask scheduler answers at {address!r}: {error}; give tcp://HOST:PORT") from None
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a loss is reported in one line
    return client
