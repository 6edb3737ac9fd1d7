"""Rows and chains on several devices: the same draws, and no data sent between devices."""

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

from bmsvm import BMSVMGibbs, prepare
from bmsvm.inference.sharding import make_mesh, place

TESTS = Path(__file__).parent


def environment(devices):
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        **os.environ,
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        "JAX_PLATFORMS": "cpu",
    }


def on_eight_devices(moves, likelihood):
    command = [sys.executable, sharded.__file__, moves, likelihood]
    done = subprocess.run(
        command, env=environment(8), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_draws(found, tolerance):
    assert found["devices"] == 8
    assert found["moved"]
    for mesh in ("2x1", "8x1", "4x2"):
        rows = int(mesh.split("x")[0])
        assert found[mesh]["shard"] == [sharded.N // rows, sharded.RANK]
        for site, difference in found[mesh]["differences"].items():
            assert difference < tolerance, (mesh, site)


def check_traffic(found):
    """No device sends another anything as large as the basis, or as a column of scores.

    Statistics have (r, k) numbers of each chain, and one chain of a device of the mesh 4 x 2.
    """
    operations = found["collectives"]
    assert any(name == "all-reduce" for name, _ in operations)
    largest = max(size for _, size in operations)
    assert largest <= sharded.CHAINS * sharded.RANK * sharded.CLASSES < sharded.N


@pytest.mark.parametrize(
    ("moves", "likelihood"),
    [
        ("large", "normalized"),
        pytest.param("momentum", "normalized", marks=pytest.mark.long),
        pytest.param("gibbs", "hinge", marks=pytest.mark.long),
    ],
)
def test_draws_do_not_depend_on_the_devices(moves, likelihood):
    """Ten sweeps of warm-up and four draws; rounding grows from sweep to sweep."""
    found = on_eight_devices(moves, likelihood)
    print(found)
    check_draws(found, 1e-7)
    check_traffic(found)


PROCESS = """
import json, sys
import jax
port, number, count = map(int, sys.argv[1:4])
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=count, process_id=number)
import dataclasses
import numpy as np
import sharded
from bmsvm.inference.sharding import make_mesh, place

problem = sharded.low_rank_problem(likelihood="normalized")
mesh = make_mesh()
assert mesh.shape["rows"] == count == jax.process_count()
mine = slice(number * sharded.N // count, (number + 1) * sharded.N // count)
half = dataclasses.replace(
    problem,
    labels=problem.labels[mine],
    factor=problem.factor._replace(basis=problem.factor.basis[mine]),
)
placed = place(half, mesh, local=True)
assert placed.n_rows == sharded.N
found = sharded.draws(placed, "large", mesh)
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
    problem = sharded.low_rank_problem(likelihood="normalized")
    expected = sharded.draws(problem, "large").samples
    differences = sharded.differences(
        dict(expected), {name: np.array(found[name]) for name in expected}
    )
    assert max(differences.values()) < 1e-9, differences


@pytest.fixture(scope="module")
def problem():
    return sharded.low_rank_problem()


def test_what_cannot_be_split_is_named(problem):
    devices = jax.devices()
    with pytest.raises(ValueError, match="no more than the 4 devices there are; got 8 x 1"):
        make_mesh(8, devices=devices[:4])
    mesh = make_mesh(3, devices=devices)
    X, y = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10) % 2
    with pytest.raises(ValueError, match=r"3 equal parts: prepare with spare_rows=2; there are 10"):
        place(prepare(X, y), mesh)
    off = prepare(X, y, lengthscale="sample", lengthscale_grid="off")
    with pytest.raises(ValueError, match="pass a number for the lengthscale"):
        place(off, mesh)
    sampler = BMSVMGibbs("linear")
    state = sampler.init(jax.random.split(jax.random.key(0), 3), 0, None, (problem,), {})
    with pytest.raises(ValueError, match=r"num_chains must be a multiple of 2, .*; got 3"):
        place(state, make_mesh(1, 2))
    with pytest.raises(ValueError, match="local is for a problem"):
        place(state, make_mesh(1, 1), local=True)
    with pytest.raises(ValueError, match="more rows than the rank, 10, and one; got 10"):
        place(prepare(X, y), make_mesh(1, 1), local=True)
