"""Placements and groups: which arrays are sharded, and who handles `Ctrl-C`."""

import atexit
import inspect
import os
import signal
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from builders import tiny_network
from jax.sharding import PartitionSpec

from farrier.cli import fit as cli_fit
from farrier.cli._processes import joined
from farrier.core.posteriors import POSTERIORS
from farrier.scale.placement import ONE_DEVICE, Meshed, nodes_first
from farrier.scale.processes import LostProcess, ProcessGroup
from farrier.train.config import TrainConfig
from farrier.train.step import TrainState

WIDTH = 6


def network(key, **settings):
    """As many inputs as nodes, and two hidden layers of one width: all shapes agree."""
    return tiny_network(WIDTH, (WIDTH, WIDTH), rows=50, key=key, **settings)


def sharded_names(layer):
    flags = jax.tree_util.tree_leaves_with_path(nodes_first(layer))
    return {jax.tree_util.keystr(path) for path, sharded in flags if sharded}


def test_arrays_with_a_node_axis_are_sharded_by_name(getkey):
    """`inputs` has as many entries as there are nodes, and is not sharded."""
    layer = network(getkey()).layers[0]
    assert len(layer.inputs) == len(layer.nodes) == WIDTH
    normal = [".loc", ".log_scale"]
    weights = {f".weights.{part}{n}" for part in ("kernel", "bias") for n in normal}
    scales = {f".scales['tau'].q{n}" for n in normal}
    assert sharded_names(layer) == weights | scales | {".nodes"}


def test_of_a_matrix_normal_the_arrays_of_the_nodes_are_sharded(getkey):
    layer = network(getkey(), posterior=POSTERIORS["matrix"]).layers[0]
    names = {n for n in sharded_names(layer) if n.startswith(".weights")}
    assert names == {".weights.loc", ".weights.log_column", ".weights.pseudo_outputs"}
    for name in names:
        array = getattr(layer.weights, name.removeprefix(".weights."))
        assert len(array) == WIDTH


def specs(tree):
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(p): v.sharding.spec for p, v in leaves}


def test_the_optimiser_is_sharded_as_its_network(getkey):
    mesh = Meshed.over(jax.devices()[:1], wide=WIDTH)
    state = TrainState.create(network(getkey()), TrainConfig())
    spec_of = specs(mesh.put_on_devices(state))
    cut = {name for name, spec in spec_of.items() if spec == PartitionSpec("nodes")}
    first = ".layers[1].weights.kernel.loc"
    assert {f".network{first}", f".optimiser.mu{first}"} <= cut
    assert not any(".inputs" in name or "output" in name for name in cut)
    assert all(spec_of[n] == PartitionSpec() for n in spec_of.keys() - cut)


def test_narrow_layers_are_on_each_device(getkey):
    mesh = Meshed.over(jax.devices()[:1])
    spec_of = specs(mesh.put_on_devices(network(getkey())))
    assert set(spec_of.values()) == {PartitionSpec()}


def test_what_was_put_on_devices_comes_back(getkey):
    mesh, before = Meshed.over(jax.devices()[:1], wide=WIDTH), network(getkey())
    assert eqx.tree_equal(mesh.gathered(mesh.put_on_devices(before)), before)
    key = mesh.put_on_devices(jr.key(3))
    assert jr.key_data(key).tolist() == jr.key_data(jr.key(3)).tolist()


# --- groups -----------------------------------------------------------------------


@pytest.fixture
def group():
    """A group of one process, which handles `Ctrl-C` until the test has ended."""
    before = signal.getsignal(signal.SIGINT)
    group = ProcessGroup()
    yield group
    signal.signal(signal.SIGINT, before)
    atexit.unregister(group._end)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_waits_until_all_processes_agree(group):
    done = []

    def work():
        with group.together():
            interrupt()
            done.append("the block ended")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    group.agree()  # it is reported once


def test_a_second_interrupt_stops_this_process_at_once(group):
    def work():
        with group.together():
            interrupt()
            interrupt()
            pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_work_of_a_process_by_itself_is_interrupted_at_once(group):
    def work():
        with group.separately():
            interrupt()
            pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt):
        work()
    interrupt()  # now it waits again
    with pytest.raises(KeyboardInterrupt):
        group.agree()


def test_errors_of_the_network_mean_a_lost_process(group):
    with pytest.raises(LostProcess, match="continue from there"), group.communicating():
        raise RuntimeError("UNAVAILABLE: connection reset")
    with pytest.raises(RuntimeError, match="something else"), group.communicating():
        raise RuntimeError("something else")


@pytest.mark.parametrize("one", [True, False])
def test_one_process_needs_no_messages(one, group, tmp_path):
    group = ONE_DEVICE.group if one else group
    assert (group.count, group.rank, group.is_first) == (1, 0, True)
    np.testing.assert_array_equal(group.from_first(np.arange(3)), np.arange(3))
    assert group.bytes_of(0, b"abc") == b"abc"
    group.check_same("rows", "digest")
    with group.file_of_first(tmp_path / "absent") as path:
        assert path == tmp_path / "absent"
    with pytest.raises(ValueError, match="my problem"), group.together():
        raise ValueError("my problem")


# --- command line -----------------------------------------------------------------


def test_the_placement_is_no_option_of_a_command():
    shown = inspect.signature(cli_fit.fit).parameters
    assert "placement" not in shown
    assert {"distributed", "coordinator", "processes", "rank"} <= shown.keys()


NO_ADDRESS = {"coordinator": None, "processes": None, "rank": None}


def placement_of(**options):
    """What a command with these options trains on."""
    placements: list[Any] = []

    def command(placement, **options):
        assert options.keys() == {"distributed", *NO_ADDRESS}
        placements.append(placement)

    joined(command)(**NO_ADDRESS | options)
    return placements[0]


def test_a_command_of_one_process_gets_no_placement():
    assert placement_of(distributed=False) is None
    with pytest.raises(ValueError, match="--rank go with --distributed"):
        placement_of(distributed=False, rank=1)


def test_a_distributed_command_gets_all_devices():
    placement = placement_of(distributed=True, processes=1)
    assert isinstance(placement, Meshed)
    assert placement.mesh.devices.size == len(jax.devices())
    assert placement.group is ONE_DEVICE.group
