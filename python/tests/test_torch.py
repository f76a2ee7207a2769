"""torch.ops.halyard: results, gradients, compiled graphs."""

import concurrent.futures
import dataclasses
import functools
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import exact
import halyard

torch = pytest.importorskip("torch")
import halyard.torch  # noqa: E402

BASE, DIM, FACTOR = 10000.0, 32, 1.25
FREQUENCIES = exact.inv_freq(BASE, DIM)


@pytest.fixture(scope="module")
def angles():
    return halyard.AngleSource(halyard.Frequencies.from_list(FREQUENCIES.astype(np.float64), FACTOR))


LISTED = FREQUENCIES.astype(np.float64).astype(np.longdouble)  # what the source was made of


def tensors(rng, dtype, *heads):
    return [torch.from_numpy(rng.standard_normal((2, 5, n, DIM + 4))).to(dtype) for n in heads]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("out_pairing", ["half", "interleaved"])
def test_gradients_are_the_inverse(rng, angles, dtype, out_pairing):
    q, k, q_gradient, k_gradient = tensors(rng, dtype, 4, 2, 4, 2)
    positions = torch.tensor([[0, 3, 1, 9, 131_071], [5, 6, 7, 8, 9]])
    q.requires_grad_(), k.requires_grad_()
    turned = halyard.torch.rotate(q, k, angles=angles, positions=positions, pairing="half", out_pairing=out_pairing,
                                  rotary_offset=2)
    torch.autograd.backward(turned, (q_gradient, k_gradient))
    for x, y, gradient in zip((q, k), turned, (q_gradient, k_gradient)):
        x, y, back, gradient = map(exact.as_numpy, (x, y, x.grad, gradient))
        exact.check(y, x, positions.numpy(), LISTED, pairing="half", out_pairing=out_pairing, offset=2, factor=FACTOR)
        exact.check(back, gradient, positions.numpy(), LISTED, pairing=out_pairing, out_pairing="half", offset=2,
                    factor=FACTOR, inverse=True)


def test_q_alone_start_and_layout(rng, angles):
    (q,) = tensors(rng, torch.float32, 3)
    q.requires_grad_()
    y = halyard.torch.rotate(q.transpose(1, 2), angles=angles, positions=7, layout="bhsd")
    y.square().sum().backward()
    expected = halyard.rotate(q.detach(), angles=angles, positions=7)
    assert torch.equal(y.transpose(1, 2), expected)
    back = halyard.rotate(2 * expected, angles=angles, positions=7, inverse=True)
    assert torch.equal(q.grad, back)


def test_gradient_of_one_output(rng, angles):
    q, k = tensors(rng, torch.float32, 3, 3)
    q.requires_grad_()
    halyard.torch.rotate(q, k, angles=angles, positions=0)[0].sum().backward()
    assert torch.equal(q.grad, halyard.rotate(torch.ones_like(q), angles=angles, positions=0, inverse=True))


def test_second_derivatives(rng, angles):
    (q,) = tensors(rng, torch.float32, 1)
    q.requires_grad_()
    turned = halyard.torch.rotate(q, angles=angles, positions=0)
    (gradient,) = torch.autograd.grad(turned.pow(3).sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), q)
    assert torch.isfinite(second).all() and second.abs().max() > 0


HEADS = 4, 2, 2


def road_case(rng, angles, n=3, packed=True):
    """A Road with norms and caches of two layouts, its arguments, and what halyard.rotate makes of the same."""
    width = DIM + 4
    columns = halyard.CacheLayout(12, 6, 6 * 2 * width, 6 * width, stride_token=1, tile_elements=1,
                                  stride_tile_elements=6)
    stages = [dict(rotary_offset=2, norm=halyard.Norm(eps=1e-5)),
              dict(rotary_offset=2, norm=halyard.Norm(unit_offset=True), cache=halyard.Cache()),
              dict(cache=halyard.Cache(layout=columns))]
    how = dict(angles=angles, duplicate_slots="last")
    numbers = HEADS if packed else (None,) * 3
    road = halyard.torch.Road(*(halyard.Tensor(n, **each) for n, each in zip(numbers, stages)),
                              head_dim=width if packed else 0, **how)
    weights = [torch.from_numpy(rng.standard_normal(width)).float() for _ in range(2)]
    x = torch.from_numpy(rng.standard_normal((n, sum(HEADS), width))).float()
    tensors = (x.clone().flatten(1),) if packed else x.clone().split(HEADS, 1)
    caches = torch.zeros(12, 2, width), torch.zeros(2, 2, width, 6)
    given = dict(positions=torch.arange(n) + 7, slots=torch.tensor([5, -1, 11, 2])[:n])
    wanted = x.clone(), *(cache.clone() for cache in caches)
    brought = [dict(norm=dataclasses.replace(stages[0]["norm"], weight=weights[0])),
               dict(norm=dataclasses.replace(stages[1]["norm"], weight=weights[1]), cache=wanted[1]),
               dict(cache=halyard.Cache(wanted[2].view(-1), columns))]
    split = wanted[0].split(HEADS, 1)
    for each in brought[:2]:
        each["rotary_offset"] = 2
    halyard.rotate(*(halyard.Tensor(x, **each) for x, each in zip(split, brought)), in_place=True, **given, **how)
    given |= dict(k_cache=caches[0], v_cache=caches[1], q_weight=weights[0], k_weight=weights[1])
    if not packed:
        given |= dict(k=tensors[1], v=tensors[2])
    wanted = (wanted[0].flatten(1) if packed else split[0], *wanted[1:])
    return road, tensors[0], given, wanted


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_road(rng, angles, packed, backend):
    for n in (3, 4, 3):
        road, q, given, wanted = road_case(rng, angles, n, packed)
        call = road if backend is None else torch.compile(road, fullgraph=True, backend=backend)
        with torch.no_grad():
            call(q, **given)
        for x, y in zip((q, given["k_cache"], given["v_cache"]), wanted):
            assert torch.equal(x, y)
    out = torch.zeros(3, HEADS[0], DIM + 4)
    road, q, given, wanted = road_case(rng, angles, 3, packed)
    before = q.clone()
    road(q, out=out, **given)
    assert torch.equal(out, (wanted[0][:, :HEADS[0] * (DIM + 4)] if packed else wanted[0]).reshape(out.shape))
    assert torch.equal(q, before)


def test_opcheck(rng, angles):
    q, k = tensors(rng, torch.float32, 3, 1)
    how = halyard.torch.describe(angles, inverse=True, rotary_offset=2)
    for n, name in ((1, "rotate"), (2, "rotate_qk"), (1, "rotate_no_grad"), (2, "rotate_qk_no_grad"), (1, "rotate_"),
                    (2, "rotate_qk_")):
        for change in (lambda x: x.clone(), lambda x: x.transpose(0, 1), lambda x: x[:, ::2],
                       lambda x: x[:1].clone()):
            inputs = tuple(change(x).requires_grad_(name in ("rotate", "rotate_qk")) for x in (q, k)[:n])
            with torch.set_grad_enabled(not name.endswith("_")):
                torch.library.opcheck(getattr(torch.ops.halyard, name), (*inputs, how, None, 3))
                torch.library.opcheck(getattr(torch.ops.halyard, name),
                                      (*inputs, how, torch.arange(inputs[0].shape[1])))
    road, x, given, _ = road_case(rng, angles)
    with torch.no_grad():
        torch.library.opcheck(torch.ops.halyard.road, (x, road.how), given)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_in_place_and_without_gradients(rng, angles, dtype):
    q, k = tensors(rng, dtype, 3, 1)
    positions = torch.arange(5).expand(2, -1)
    expected = halyard.rotate(q, k, angles=angles, positions=positions)
    how = halyard.torch.describe(angles)
    ops = torch.ops.halyard
    assert all(map(torch.equal, ops.rotate_qk_no_grad(q, k, how, positions), expected))
    assert torch.equal(ops.rotate_no_grad(k, how, positions), expected[1])
    assert ops.rotate_qk_(q, k, how, positions) is None and all(map(torch.equal, (q, k), expected))
    ops.rotate_(k, halyard.torch.describe(angles, inverse=True), positions)
    assert torch.equal(k, halyard.rotate(expected[1], angles=angles, positions=positions, inverse=True))


def test_outputs_lie_as_empty_like_has_them(angles):
    how = halyard.torch.describe(angles)
    base = torch.zeros(2, 5, 3, DIM)
    for x in (base, base.transpose(1, 2), base.transpose(0, 1), base[:, ::2], base[..., :1, :], base[:1],
              base.expand(2, 5, 3, DIM), base[:1].expand(4, 5, 3, DIM), base[:, :0], base[0].transpose(0, 1)):
        assert torch.ops.halyard.rotate_no_grad(x, how).stride() == torch.empty_like(x).stride(), x.stride()


CACHED = """
import sys, torch, halyard, halyard.torch
from torch._dynamo.utils import counters
bases = [1e4, 5e5, 1e6]
sources = {base: halyard.AngleSource(halyard.Frequencies.from_base(base, 8), first=0, n_positions=100)
           for base in (bases if sys.argv[1] == "first" else bases[::-1])}
roads = {base: halyard.torch.Road(angles=source) for base, source in sources.items()}
def layer(q, positions):
    for base in bases:
        q = halyard.torch.rotate(q + 1, angles=sources[base], positions=positions)
        roads[base](q, positions=positions)
    return q
q, positions = torch.ones(3, 2, 8), torch.arange(3)
with torch.no_grad():
    assert torch.equal(torch.compile(layer, fullgraph=True)(q, positions), layer(q, positions))
print("hits", counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_graphs_on_disk_serve_another_process(tmp_path):
    """One that makes its sources in another order."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    hits = [subprocess.run([sys.executable, "-c", CACHED, which], env=environment, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()[-1] for which in ("first", "second")]
    assert hits[0] == "0" and int(hits[1]) > 0


def test_keys_of_sources():
    base = halyard.Frequencies.from_base
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 1, "rope_theta": 1e4}
    made = [lambda: halyard.AngleSource(base(1e4, 64)), lambda: halyard.AngleSource(base(1e4, 32)),
            lambda: halyard.AngleSource(base(2e4, 64)),
            lambda: halyard.AngleSource(base(1e4, 64), "table", n_positions=10, first=0),
            lambda: halyard.AngleSource(base(1e4, 64), axis_map=("sections", (16, 16))),
            lambda: halyard.AngleSource(halyard.Frequencies.from_list([1.0, 0.5])),
            lambda: halyard.AngleSource(halyard.Frequencies.from_list([1.0, 0.5], 2.0)),
            lambda: halyard.AngleSource(halyard.Frequencies.from_config(config)),
            lambda: halyard.AngleSource(halyard.Frequencies.from_config(config).for_length(9))]
    sources = [make() for make in made]
    assert len({source._key for source in sources}) == len(made)
    assert all(make()._handle is source._handle for make, source in zip(made, sources))
    rows = torch.ones(4, 8)
    given = [halyard.AngleSource.given(rows, rows) for _ in range(2)]
    assert given[0]._key != given[1]._key


def test_given_rows(rng):
    """By position, by token, and by a map of axes, as vLLM's table of M-RoPE."""
    frequencies = halyard.Frequencies.from_base(1e4, 8)
    table = torch.tensor(np.outer(np.arange(20), frequencies.inv_freq)).float()
    q = torch.from_numpy(rng.standard_normal((5, 2, 8))).float()
    positions = torch.from_numpy(rng.integers(0, 20, (3, 5)))
    counts = 1, 2, 1
    mapped = halyard.AngleSource.given(table.cos(), table.sin(), axis_map=("sections", counts))
    rows = torch.cat([table[positions[axis]].split(counts, -1)[axis] for axis in range(3)], -1)
    by_token = halyard.AngleSource.given(rows.cos(), rows.sin(), by_token=True)
    by_axis = table[positions].flatten(0, 1)
    of_tokens = halyard.AngleSource.given(by_axis.cos(), by_axis.sin(), axis_map=("sections", counts))
    expected = halyard.rotate(q, angles=by_token)
    for source, where in ((mapped, positions), (of_tokens, torch.arange(15).view(3, 5)), (by_token, None)):
        assert torch.equal(halyard.torch.rotate(q, angles=source, positions=where), expected)
        assert torch.equal(halyard.rotate(q, angles=source, positions=where), expected)
    with pytest.raises(halyard.Error, match="axis"):
        halyard.AngleSource.given(rows, rows, axis_map=("sections", (1, 1, 1)))


def test_many_threads(rng, angles):
    """Each with shapes of its own, so that runs are bound and found at the same time."""
    how = halyard.torch.describe(angles, threads=1)
    q = torch.from_numpy(rng.standard_normal((2, 40, 2, DIM))).float()
    expected = halyard.rotate(q, angles=angles, positions=0)

    def work(seed):
        for n in np.random.default_rng(seed).integers(1, 41, 300):
            assert torch.equal(torch.ops.halyard.rotate_no_grad(q[:, :n], how), expected[:, :n])
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_sources_are_let_go():
    """What was bound for a source goes with it, as soon as something else is bound."""
    q = torch.ones(1, 1, 8)
    for i in range(5):
        angles = halyard.AngleSource(halyard.Frequencies.from_base(3.0 + i, 8), "table", first=0, n_positions=10)
        halyard.torch.rotate(q, angles=angles, positions=0)
        key = angles._key
    del angles
    halyard.torch.rotate(q, angles=halyard.AngleSource(halyard.Frequencies.from_base(99.0, 8)), positions=0)
    with pytest.raises(RuntimeError, match="alive"):
        torch.ops.halyard.rotate(q, key)


def test_compiled_in_one_graph(rng, angles):
    weight = torch.randn(DIM + 4, DIM + 4)

    def layer(q, k, positions):
        q, k = halyard.torch.rotate(q @ weight, k, angles=angles, positions=positions)
        return (q * 2).sum((-1, -2)) + k.sum((-1, -2))

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for n_tokens in (5, 3):
        q, k = (x[:, :n_tokens].clone().requires_grad_() for x in tensors(rng, torch.float32, 3, 1))
        positions = torch.arange(n_tokens) + 11
        expected = layer(q, k, positions)
        assert torch.equal(compiled(q, k, positions), expected)
        wanted = torch.autograd.grad(expected.sum(), (q, k))
        got = torch.autograd.grad(compiled(q, k, positions).sum(), (q, k))
        assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(got, wanted))


def ways_to_differentiate(f, x):
    """By forward mode, and by torch.func: calls, by name."""
    func, forward_ad, v = torch.func, torch.autograd.forward_ad, torch.ones_like(x)
    compiled = torch.compile(f, backend="eager")
    compiled(x)  # a graph from before there was a tangent

    def dual(call=f, wants_gradient=False, mode=torch.enable_grad):
        with forward_ad.dual_level(), mode():
            return call(forward_ad.make_dual(x.clone().requires_grad_(wants_gradient), v))

    def total(y):
        return f(y).sum()

    def pushed(y):
        return func.jvp(f, (y,), (v,))[1]

    return {
        "dual": dual, "dual, no_grad": lambda: dual(mode=torch.no_grad), "dual, gradient": lambda: dual(f, True),
        "dual, compiled": lambda: dual(compiled), "jvp": lambda: pushed(x), "jacfwd": lambda: func.jacfwd(f)(x),
        "linearize": lambda: func.linearize(f, x), "jvp, compiled": lambda: torch.compile(pushed, backend="eager")(x),
        "jvp of vmap": lambda: func.jvp(torch.vmap(f), (x[None],), (v[None],)),
        "grad": lambda: func.grad(total)(x), "jacrev": lambda: func.jacrev(f)(x), "hessian": lambda: func.hessian(f)(x),
        "vmap of grad": lambda: torch.vmap(func.grad(total))(x[None]),
        "grad, compiled": lambda: torch.compile(func.grad(total), backend="eager")(x)}


def test_other_derivatives_are_refused(angles):
    """In one sentence; what is no derivative of Halyard's works within them."""
    x, at, how = torch.ones(1, 1, DIM), torch.tensor([1]), halyard.torch.describe(angles)

    def turned(q):
        return halyard.torch.rotate(q, angles=angles, positions=at)

    def in_place(q):
        halyard.torch.Road(angles=angles)(y := q.clone(), positions=at)
        return y

    for f in (turned, lambda q: halyard.torch.rotate(x, q, angles=angles, positions=at)[1], in_place,
              lambda q: torch.ops.halyard.rotate(q, how, at), lambda q: halyard.rotate(q, angles=angles, positions=at)):
        for name, way in ways_to_differentiate(f, x).items():
            with pytest.raises((halyard.Error, RuntimeError), match=r"\A.*(tangent|gradient|DLPack|out=).*\Z"):
                pytest.fail(f"{name} gives {way()}")
    y, tangent = torch.func.jvp(lambda w: (turned(x) * w).sum(), (x,), (x,))
    assert torch.equal(torch.func.grad(lambda w: (turned(x) * w).sum())(x), turned(x)) and y == tangent
    assert torch.equal(torch.autograd.functional.jvp(turned, x, x)[1], turned(x))  # by two backward passes
    for vectorize in (False, True):
        jacobian = torch.autograd.functional.jacobian(turned, x, vectorize=vectorize).reshape(DIM, DIM)
        assert torch.allclose(jacobian @ x[0, 0], turned(x)[0, 0], rtol=1e-5)


def test_bad_input(rng, angles):
    (q,) = tensors(rng, torch.float32, 3)
    for bad in (dict(positions=torch.zeros(5)), dict(positions=torch.zeros(6, dtype=torch.long)),
                dict(layout="tbhd"), dict(pairing="neox"), dict(rotary_offset=5)):
        with pytest.raises(halyard.Error):
            halyard.torch.rotate(q, angles=angles, **bad)
    with pytest.raises(halyard.Error):
        halyard.torch.rotate(q.double(), angles=angles)
    with pytest.raises(halyard.Error, match="lie on cpu and meta"):
        halyard.torch.rotate(q, angles=angles, positions=torch.arange(5, device="meta"))
    with pytest.raises(Exception):
        torch.compile(lambda x: halyard.torch.rotate(x, angles=angles), fullgraph=True, backend="eager")(q.double())


def test_bad_operands(rng, angles):
    """Of operators themselves: each is a sentence that names the operator and the argument, and nothing is written."""
    q, k = tensors(rng, torch.float32, 3, 1)
    ops, how, short = torch.ops.halyard, halyard.torch.describe(angles), halyard.AngleSource(
        halyard.Frequencies.from_base(BASE, DIM), first=0, n_positions=10)

    def road(**changed):
        road, x, given, _ = road_case(rng, angles)
        given |= changed
        how = given.pop("how", None) or road.how
        return (lambda: ops.road(given.pop("q", x), how, **given)), (x, *given.values())

    def turn(op, *given):
        return (lambda: op(*given)), given

    table = [
        (turn(ops.rotate_, q, "nothing"), "alive"), (turn(ops.rotate_, q, ""), "alive"),
        (turn(ops.rotate_, q, how + "|0"), "describe"),
        (turn(ops.rotate_, q, how.replace(how[:4], "0000")), "alive"),
        (turn(ops.rotate_, q[0, 0], how), "q has the shape"), (turn(ops.rotate_, q.double(), how), "float64"),
        (turn(ops.rotate_, q.long(), how), "int64"), (turn(ops.rotate_, q[..., :DIM - 2], how), "not inside a head"),
        (turn(ops.rotate_, q, how, torch.arange(4)), "positions"),
        (turn(ops.rotate_, q, how, torch.zeros(5)), "positions"),
        (turn(ops.rotate_, q, how, torch.zeros(2, 5, 1, dtype=torch.long)), "positions"),
        (turn(ops.rotate_, q, how, None, 2**40), "position"),
        (turn(ops.rotate_, q, short._key, None, 8), "position"),
        (turn(ops.rotate_, q, short._key, torch.full((5,), 10)), "position"),
        (turn(ops.rotate_, q[:, :1].expand(2, 5, 3, DIM + 4), how), "STRIDE|meet|element|share"),
        (turn(ops.rotate_qk_, q, q, how), "share|overlap"), (turn(ops.rotate_qk_, q, k[:, :3], how), "shape"),
        (turn(ops.rotate_qk_, q, k.half(), how, torch.arange(6)), "positions"),
        (road(slots=torch.tensor([5, 12, 1])), "slot"), (road(slots=torch.tensor([5, 1])), "slots"),
        (road(slots=None), "slots"), (road(positions=None), "positions"),
        (road(k_cache=torch.zeros(12, 3, DIM + 4)), "cache of k"),
        (road(v_cache=torch.zeros(100)), "cache of v"), (road(q_weight=torch.ones(3)), "weight"),
        (road(q_weight=torch.ones(DIM + 4, dtype=torch.float64)), "weight of q"), (road(k=k[0]), "k"),
        (road(out=torch.zeros(4, 4, DIM + 4)), "shape"), (road(q=torch.zeros(3, 5)), "q has the shape"),
        (road(how="no"), "angles"), (road(how=how), "Road"), (road(v=k[0]), "v is given"),
        (road(how=halyard.torch.Road(*HEADS, head_dim=DIM + 4, angles=angles).how), "norm|weight"),
    ]
    wrong = []
    for (call, given), words in table:
        written = [x for x in given if isinstance(x, torch.Tensor)]
        before, said = [x.clone() for x in written], "nothing"
        try:
            with torch.no_grad():
                call()
        except RuntimeError as refusal:
            said = str(refusal)
        if not re.match(f"halyard::.*({words})", said) or not all(map(torch.equal, written, before)):
            wrong.append((words, said))
    assert not wrong


def test_what_needs_no_grad_and_other_mistakes(rng, angles):
    q, k = tensors(rng, torch.float32, 3, 1)
    ops, how = torch.ops.halyard, halyard.torch.describe(angles)
    with pytest.raises(halyard.Error, match="^weight of q"):
        road, x, given, _ = road_case(rng, angles)
        road(x, **(given | dict(q_weight=torch.ones(3, 3).T[::2])))
    with pytest.raises(halyard.Error, match="weight"):
        halyard.torch.Road(halyard.Tensor(norm=halyard.Norm(torch.ones(3))), angles=angles)
    for call in functools.partial(ops.rotate_, q, how), functools.partial(ops.rotate_qk_, q, k, how):
        with pytest.raises(RuntimeError, match="no_grad"):
            call()
    for given in (dict(q=q.clone().requires_grad_()), dict(q=q, k=k.clone().requires_grad_())):
        with pytest.raises(halyard.Error, match="requires a gradient"):
            halyard.torch.Road(angles=angles)(**given)
    for make in halyard.torch.Road, halyard.torch.describe, functools.partial(halyard.torch.rotate, q):
        with pytest.raises(TypeError, match="angles"):
            make(angles=None)


def test_what_a_device_takes_instead(rng, angles, monkeypatch):
    """Tensors of a CUDA device go by Python to the same place; here the CPU stands for one."""
    monkeypatch.setattr(halyard.torch, "turn_on_cuda", halyard._core.rotate)
    q, k = tensors(rng, torch.float32, 3, 1)
    how, positions = halyard.torch.describe(angles, rotary_offset=2, threads=1), torch.arange(5).expand(2, -1)
    for name, given in (("rotate", (q, how, positions)), ("rotate_qk_no_grad", (q, k, how)),
                        ("rotate_qk_", (q, k, how, None, 3))):
        op = getattr(torch.ops.halyard, name).default
        copied = [x.clone() if isinstance(x, torch.Tensor) else x for x in given]
        with torch.no_grad():
            results = op(*given), halyard.torch._run_on_cuda(op, *copied)
        results = [(each,) if isinstance(each, torch.Tensor) else each or () for each in results]
        assert all(map(torch.equal, (*results[0], given[0]), (*results[1], copied[0])))
    road, x, given, wanted = road_case(rng, angles)
    how = road.how.replace("|last|0|", "|last|1|")  # threads, which the device does not have
    halyard.torch._run_on_cuda(torch.ops.halyard.road.default, x, how, None, None,
                               *(given[name] for name in halyard.torch._ROLES[3:9]))
    assert all(map(torch.equal, (x, given["k_cache"], given["v_cache"]), wanted))


def test_another_pytorch_is_refused():
    with pytest.raises(halyard.Error, match="has not loaded nothing_of_this_name"):
        halyard._core.implement_operators("nothing_of_this_name.so", print)
    code = "import halyard; halyard._core.implement_operators('libc.so.6', print)"
    refused = subprocess.run([sys.executable, "-c", code], text=True, stderr=subprocess.PIPE, check=False)
    assert "halyard.torch takes 2.13 or newer" in refused.stderr
