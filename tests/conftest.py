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
