"""Settings and fixtures of all tests. JAX is set before any test imports farrier."""

import itertools
import os
import zlib
from collections.abc import Callable
from pathlib import Path

# Tests compile far more than they compute. Those of test_behaviour.py, which compute,
# run in processes of their own, without these.
XLA_FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("XLA_FLAGS", " ".join(XLA_FLAGS))

import jax  # noqa: E402
import jax.random as jr  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import PRNGKeyArray  # noqa: E402

jax.config.update("jax_enable_x64", val=True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

ROOT = Path(__file__).parents[1]
MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # Linux allows a process 65,530; each compiled program has hundreds


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test ARGS=--slow` runs all."""
    parser.addoption("--slow", action="store_true", help="Run the slow tests too.")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Slow tests wait to be asked for; then they come first, and no worker last."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    if config.getoption("--slow"):
        items.sort(key=lambda item: item not in slow)
        return
    for item in slow:
        item.add_marker(pytest.mark.skip(reason="slow: `make test ARGS=--slow`"))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Between two files, programs that fill the process are given up."""
    if nextitem is None or nextitem.path == item.path or not MAPS.exists():
        return
    if len(MAPS.read_text().splitlines()) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def getkey(request: pytest.FixtureRequest) -> Callable[[], PRNGKeyArray]:
    """Fresh keys, one a call; seeded by the test's name, shifted by the environment."""
    shift = int(os.environ.get("FARRIER_TEST_SEED", "0"))
    seed = (zlib.crc32(request.node.nodeid.encode()) + shift) % 2**32
    key, count = jr.key(seed), itertools.count()
    return lambda: jr.fold_in(key, next(count))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of data sets that are not part of the repository."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the data sets of ../shared/data are not on this machine")
    return folder
