"""Rows and chains on several devices: the same draws, and no data sent between devices."""

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import sharded

from bmsvm import BMSVMGibbs, Sampled, prepare
from bmsvm.inference.run import start_chains
from bmsvm.inference.sharding import make_mesh, place_chains, place_problem, row_parts

TESTS = Path(__file__).parent


def environment(devices):
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        **os.environ,
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        "JAX_PLATFORMS": "cpu",
    }


@functools.cache
def on_eight_devices(*arguments):
    command = [sys.executable, sharded.__file__, *arguments]
    done = subprocess.run(
        command, env=environment(8), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_draws(found, tolerance):
    assert found["devices"] == 8
    assert np.ptp(found["alone"]["precision"]) > 0
    for mesh, result in found["meshes"].items():
        rows = int(mesh.split("x")[0])
        assert result["shard"] == [sharded.N // rows, sharded.RANK]
        for site, difference in result["differences"].items():
            assert difference < tolerance, (mesh, site)


def check_traffic(found):
    """No device sends another anything as large as the basis, or as a column of scores.

    Statistics have (r, k) numbers of each chain, and one chain of a device of the mesh 4 x 2.
    """
    operations = found["collectives"]
    assert any(name == "all-reduce" for name, _ in operations)
    largest = max(size for _, size in operations)
    assert largest <= sharded.CHAINS * sharded.RANK * sharded.CLASSES < sharded.N


USUAL = ("collapsed", "normalized", "4x2")


@pytest.mark.parametrize(
    "arguments",
    [
        USUAL,
        pytest.param(("collapsed", "normalized", "2x1", "8x1", "1x2"), marks=pytest.mark.long),
        pytest.param(("momentum", "normalized", "2x1", "8x1", "4x2"), marks=pytest.mark.long),
        pytest.param(("gibbs", "hinge", "2x1", "8x1", "4x2"), marks=pytest.mark.long),
    ],
    ids=" ".join,
)
def test_draws_do_not_depend_on_the_devices(arguments):
    """Ten sweeps of warm-up and four draws; rounding grows from sweep to sweep."""
    found = on_eight_devices(*arguments)
    print({name: found[name] for name in ("meshes", "collectives")})
    check_draws(found, 1e-7)
    check_traffic(found)


PROCESS = """
import json, sys
import jax
port, number, count = map(int, sys.argv[1:4])
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=count, process_id=number)
import sharded
from bmsvm.inference.sharding import make_mesh, place_problem

mesh = make_mesh()
assert mesh.shape["rows"] == count == jax.process_count()
mine = sharded.part_of(sharded.low_rank_problem(), number, count)
placed = place_problem(mine, mesh, local=True)
assert placed.n_rows == sharded.N
found = sharded.draws(placed, "collapsed", mesh)
if number == 0:
    print(json.dumps({name: value.tolist() for name, value in found.samples.items()}))
jax.distributed.shutdown()
"""


def test_two_processes_make_the_draws_of_one():
    """Each holds half of the rows only; they talk over the loopback interface.

    The reference of the moves is found from those rows, and is that of one process.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(port), str(number), "2"],
            env=environment(1),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    found = json.loads(outputs[0][0].splitlines()[-1])
    expected = on_eight_devices(*USUAL)["alone"]
    both = ({name: np.array(each[name]) for name in expected} for each in (expected, found))
    differences = sharded.differences(*both)
    assert max(differences.values()) < 1e-9, differences


def test_what_cannot_be_split_is_named():
    devices = jax.devices()
    with pytest.raises(ValueError, match="no more than the 4 devices there are; got 8 x 1"):
        make_mesh(8, devices=devices[:4])
    mesh = make_mesh(3, devices=devices)
    X, y = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10) % 2
    problem = prepare(X, y, lengthscale=1.0)
    with pytest.raises(ValueError, match=r"3 equal parts: prepare with spare_rows=2; there are 10"):
        place_problem(problem, mesh)
    off = prepare(X, y, lengthscale=Sampled(grid="off"))
    with pytest.raises(ValueError, match="pass a number for the lengthscale"):
        place_problem(off, mesh)
    with pytest.raises(ValueError, match="more rows than the rank, 10, and one; got 10"):
        place_problem(problem, make_mesh(1, 1), local=True)
    state = start_chains(BMSVMGibbs(), jax.random.key(0), problem, num_chains=3, num_warmup=0)
    with pytest.raises(ValueError, match=r"num_chains must be a multiple of 2, .*; got 3"):
        place_chains(state.chain, 3, problem.n_rows, make_mesh(1, 2))


def test_rows_are_in_as_many_parts_as_the_mesh_says():
    X, y = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10) % 2
    problem = prepare(X, y, lengthscale=1.0, spare_rows=2)
    assert row_parts(problem) == 1
    for parts in (1, 2, 4):
        assert row_parts(place_problem(problem, make_mesh(parts))) == parts
