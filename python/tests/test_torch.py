"""torch.ops.halyard: results with the bits of halyard.rotate, gradients, and compiled graphs."""

import concurrent.futures
import functools
import subprocess
import sys

import numpy as np
import pytest

import halyard
from halyard import AngleSource, Frequencies, Tensor

torch = pytest.importorskip("torch")
import halyard.torch  # noqa: E402

IS_OLD = not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")  # before PyTorch 2.10
DIM, WIDTH = 32, 40
AT = torch.tensor([[0, 3, 1, 9, 131_071], [5, 6, 7, 8, 9]])
ops, rotate = torch.ops.halyard, halyard.torch.rotate


@pytest.fixture(scope="module")
def angles():
    return AngleSource(Frequencies.from_list(1e4 ** (-np.arange(0, DIM, 2) / DIM), 1.25))


def draw(rng, dtype, *heads):
    return [torch.from_numpy(rng.standard_normal((2, 5, n, WIDTH))).to(dtype) for n in heads]


def equal(some, others):
    return len(some) == len(others) and all(map(torch.equal, some, others))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("out_pairing", ["half", "interleaved"])
def test_gradients_are_the_inverse(rng, angles, dtype, out_pairing):
    *x, k_gradient, q_gradient = draw(rng, dtype, 4, 2, 2, 4)
    gradients, there = (q_gradient, k_gradient), dict(angles=angles, positions=AT)
    x = [each.requires_grad_() for each in x]
    y = rotate(*x, **there, pairing="half", out_pairing=out_pairing, rotary_offset=2)
    torch.autograd.backward(y, gradients)
    back = [each.grad for each in x]
    for tensors, made, pairings in (x, y, ("half", out_pairing)), (gradients, back, (out_pairing, "half")):
        how = dict(zip(("pairing", "out_pairing"), pairings), inverse=made is back)
        inputs = [Tensor(each.detach(), rotary_offset=2) for each in tensors]
        assert equal(made, halyard.rotate(*inputs, **there, **how))
    for before, after, gradient in zip(x, y, gradients) if dtype == torch.float32 else ():  # y . g = x . gradient of x
        one, other = ((a.double() * b.double()).sum() for a, b in ((after, gradient), (before, before.grad)))
        assert abs(one - other) < 1e-4


def test_other_gradients(rng, angles):
    """Gradients of q alone with an int position and "bhsd"; of one of two outputs; second derivatives; Jacobians."""
    q, k = (x.requires_grad_() for x in draw(rng, torch.float32, 3, 3))
    y = rotate(q.transpose(1, 2), angles=angles, positions=7, layout="bhsd")
    y.square().sum().backward()
    expected = halyard.rotate(q.detach(), angles=angles, positions=7)
    assert torch.equal(y.transpose(1, 2), expected)
    assert torch.equal(q.grad, halyard.rotate(2 * expected, angles=angles, positions=7, inverse=True))
    rotate(q, k, angles=angles, positions=0)[1].sum().backward()
    assert torch.equal(k.grad, halyard.rotate(torch.ones_like(k), angles=angles, positions=0, inverse=True))
    (gradient,) = torch.autograd.grad(rotate(q, angles=angles, positions=0).pow(3).sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), q)
    assert torch.isfinite(second).all() and second.abs().max() > 0
    x, by_one = torch.ones(1, 1, DIM), functools.partial(rotate, angles=angles, positions=1)
    for vectorize in (False, True):
        jacobian = torch.autograd.functional.jacobian(by_one, x, vectorize=vectorize).reshape(DIM, DIM)
        assert torch.allclose(jacobian @ x[0, 0], by_one(x)[0, 0], rtol=1e-5)


def test_opcheck(rng, angles):
    qk, how = draw(rng, torch.float32, 3, 1), halyard.torch.describe(angles, inverse=True, rotary_offset=2)
    for n, name in (1, "rotate"), (2, "rotate_qk"), (1, "rotate_"), (2, "rotate_qk_"):
        for change in (lambda x: x.clone(), lambda x: x.transpose(0, 1), lambda x: x[:, ::2], lambda x: x[:1].clone()):
            inputs = [change(x).requires_grad_(name in ("rotate", "rotate_qk")) for x in qk[:n]]
            with torch.set_grad_enabled(not name.endswith("_")):
                for where in (None, 3), (torch.arange(inputs[0].shape[1]),):
                    torch.library.opcheck(getattr(ops, name), (*inputs, how, *where))


class OnDevice(torch.Tensor):
    is_cuda = True


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("on_cuda", [False, True])
def test_in_place_and_without_gradients(rng, angles, dtype, on_cuda, monkeypatch):
    """CUDA tensors take another path, rotate_on_cuda. Here a CPU tensor with is_cuda set stands for a CUDA tensor."""
    monkeypatch.setattr(halyard.torch, "rotate_on_cuda", halyard._core.rotate)
    (q, k), how = draw(rng, dtype, 3, 1), halyard.torch.describe(angles, rotary_offset=2)
    back = halyard.torch.describe(angles, rotary_offset=2, inverse=True)
    for positions in (AT,), (None, 3):
        inputs = [Tensor(x.clone(), rotary_offset=2) for x in (q, k)]
        expected = halyard.rotate(*inputs, angles=angles, positions=positions[-1])
        assert equal(ops.rotate_qk(q, k, how, *positions), expected)
        assert torch.equal(ops.rotate(k, how, *positions), expected[1])
        if on_cuda:
            halyard.torch._OPERATORS["rotate_qk_"][1](q.as_subclass(OnDevice), k, how, *positions)
        else:
            assert ops.rotate_qk_(q, k, how, *positions) is None
        assert equal((q, k), expected)
        rotated = Tensor(expected[1], rotary_offset=2)
        ops.rotate_(k, back, *positions)
        assert torch.equal(k, halyard.rotate(rotated, angles=angles, positions=positions[-1], inverse=True))


def test_keys_of_sources():
    """Each angle source has its own key, the same in every process, so that all can use compiled graphs on disk."""
    base, listed = Frequencies.from_base, Frequencies.from_list
    config = Frequencies.from_config({"model_type": "llama", "head_dim": 64, "rope_theta": 1e4})
    made = [functools.partial(AngleSource, *given, **more) for *given, more in (
        (base(1e4, 64), {}), (base(1e4, 32), {}), (base(2e4, 64), {}), (base(1e4, 64), "table", dict(n_positions=10)),
        (base(1e4, 64), dict(axis_map=("sections", (16, 16)))), (listed([1.0, 0.5]), {}), (listed([1.0, 0.5], 2.0), {}),
        (config, {}), (config.for_length(9), {}))]
    sources = [make() for make in made]
    assert len({source._key for source in sources}) == len(made)
    assert all(make()._handle is source._handle for make, source in zip(made, sources))
    code = ("import halyard, halyard.torch; a = halyard.AngleSource(halyard.Frequencies.from_base(1e4, 64));"
            "print(halyard.torch.describe(a))")
    there = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert there == halyard.torch.describe(sources[0]) + "\n"
    rows = torch.ones(4, 8)
    assert AngleSource.given(rows, rows)._key != AngleSource.given(rows, rows)._key


def test_sources_are_let_go():
    """The prepared calls of a source are freed when the source is."""
    q = torch.ones(1, 1, 8)
    for i in range(5):
        angles = AngleSource(Frequencies.from_base(3.0 + i, 8), "table", first=0, n_positions=10)
        rotate(q, angles=angles, positions=0)
        key = angles._key
    del angles
    rotate(q, angles=AngleSource(Frequencies.from_base(99.0, 8)), positions=0)
    with pytest.raises(halyard.Error, match="alive"):
        ops.rotate(q, key)


def test_given_rows(rng):
    """Rows by position, and rows by token, which take no positions."""
    q, at = torch.from_numpy(rng.standard_normal((5, 2, 8))).float(), torch.tensor([3, 0, 19, 3, 5])
    table = torch.outer(torch.arange(20.0), 10.0 ** -torch.arange(4.0))
    by_position = AngleSource.given(table.cos(), table.sin())
    by_token = AngleSource.given(table[at].cos(), table[at].sin(), by_token=True)
    expected = halyard.rotate(q, angles=by_position, positions=at)
    for each in rotate, halyard.rotate:
        assert equal((each(q, angles=by_position, positions=at), each(q, angles=by_token)), (expected, expected))


def test_many_threads(rng, angles):
    """Threads call one operator with many shapes, so that they bind and find runs at the same time."""
    (q,), how = draw(rng, torch.float32, 40), halyard.torch.describe(angles)
    expected = halyard.rotate(q, angles=angles, positions=0)

    def work(seed):
        return all(torch.equal(ops.rotate(q[:, :, :n], how), expected[:, :, :n])
                   for n in np.random.default_rng(seed).integers(1, 41, 300))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_compiled_in_one_graph(rng, angles):
    weight = torch.randn(WIDTH, WIDTH)

    def layer(q, k, positions):
        q, k = rotate(q @ weight, k, angles=angles, positions=positions)
        return (q * 2).sum((-1, -2)) + k.sum((-1, -2))

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (5, 3):
        x = [each[:, :n].clone().requires_grad_() for each in draw(rng, torch.float32, 3, 1)]
        expected, got = (call(*x, torch.arange(n) + 11) for call in (layer, compiled))
        assert torch.equal(got, expected)
        for a, b in zip(*(torch.autograd.grad(y.sum(), x) for y in (got, expected))):
            assert torch.allclose(a, b, rtol=1e-6)


def dual(f, x, v, wants_gradient=False, mode=torch.enable_grad):
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level(), mode():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x.clone().requires_grad_(wants_gradient), v))).tangent


func, compiled = torch.func, functools.partial(torch.compile, backend="eager")
FORWARD = {  # the derivative of f at x along v
    "dual": dual, "dual, no_grad": functools.partial(dual, mode=torch.no_grad),
    "dual, gradient": functools.partial(dual, wants_gradient=True),
    "jvp": lambda f, x, v: func.jvp(f, (x,), (v,))[1],
    "jacfwd": lambda f, x, v: (func.jacfwd(f)(x).flatten(-3) * v.flatten()).sum(-1),
    "linearize": lambda f, x, v: func.linearize(f, x)[1](v),
    "jvp of jvp": lambda f, x, v: func.jvp(lambda y: func.jvp(lambda s: f(s * s * y), *2 * [(torch.tensor(1.0),)])[1] / 2,
                                           (x,), (v,))[1],
    "jvp of vmap": lambda f, x, v: func.jvp(torch.vmap(f), (x[None],), (v[None],))[1][0],
    "jvp, compiled": lambda f, x, v: compiled(lambda y: func.jvp(f, (y,), (v,))[1])(x),
    # The graph is compiled without a tangent first. With one, PyTorch leaves a graph of the operator alone.
    "dual, compiled": lambda f, x, v: (g := compiled(f), g(x), dual(g, x, v))[-1]}
REFUSED = {
    "grad": lambda f, x, v: func.grad(lambda y: f(y).sum())(x), "jacrev": lambda f, x, v: func.jacrev(f)(x),
    "hessian": lambda f, x, v: func.hessian(f)(x),
    "vmap of grad": lambda f, x, v: torch.vmap(func.grad(lambda y: f(y).sum()))(x[None]),
    "grad, compiled": lambda f, x, v: compiled(func.grad(lambda y: f(y).sum()))(x)}


def test_other_derivatives(rng, angles):
    """Forward mode gives R v, the tangent as it is rotated, where an operator is not in place. All other derivatives are
    refused, with an error of one line that names the cause."""
    x, v = (torch.from_numpy(rng.standard_normal((1, 1, DIM))).float() for _ in range(2))
    at = dict(angles=angles, positions=torch.tensor([1]))
    expected = halyard.rotate(v, **at)

    def bare(name, q):
        """Calls an operator itself, with q as its last tensor. Returns the output for q."""
        given = (y := q.clone(),) if "_qk" not in name else (x.clone(), y := q.clone())
        with torch.set_grad_enabled(y.requires_grad):
            made = getattr(ops, name)(*given, halyard.torch.describe(angles), at["positions"])
        return y if made is None else made[-1] if isinstance(made, tuple) else made

    right = [lambda q: rotate(q, **at), lambda q: rotate(x, q, **at)[1],
             *(functools.partial(bare, op) for op in ("rotate", "rotate_qk"))]
    refusing = [lambda q: halyard.rotate(q, **at), *(functools.partial(bare, op) for op in ("rotate_", "rotate_qk_"))]
    for f in right:
        assert torch.equal(func.jvp(f, (x,), (v,))[0], f(x))
    for f in (*right, *refusing):
        for name, derive in (FORWARD | REFUSED).items():
            if "compiled" in name and IS_OLD:
                continue  # the old compiler itself fails
            if f in right and name in FORWARD:
                assert torch.allclose(derive(f, x, v), expected, rtol=1e-6, atol=1e-6), name
                continue
            lines = "(?s)" if "compiled" in name else ""  # PyTorch's compiler adds lines to the message
            with pytest.raises((halyard.Error, RuntimeError), match=lines + r"\A.*(tangent|gradient|DLPack|out=).*\Z"):
                pytest.fail(f"{name} gives {derive(f, x, v)}")
    torch._dynamo.reset()  # drops its state after failed compilations, which would affect later tests


BAD_OPERANDS = [  # (arguments of an operator, a part of the error message)
    (dict(how="nothing"), "alive"), (dict(how=lambda how: how + "|0"), "describe"),
    (dict(q=lambda q: q[0, 0]), "q has the shape"), (dict(positions=torch.zeros(5)), "positions"),
    (dict(start=2**40), "position"), (dict(k=lambda q: q), "share|overlap")]


@torch.no_grad()
@pytest.mark.parametrize("bad, words", BAD_OPERANDS, ids=range(len(BAD_OPERANDS)))
def test_bad_operands(rng, angles, bad, words):
    """An operator raises Error and writes nothing."""
    (q,) = draw(rng, torch.float32, 3)
    given = dict(q=q, how=halyard.torch.describe(angles))
    given |= {name: x(given["how" if name == "how" else "q"]) if callable(x) else x for name, x in bad.items()}
    tensors = [x for x in given.values() if isinstance(x, torch.Tensor)]
    before = [x.clone() for x in tensors]
    with pytest.raises(halyard.Error, match=words):
        (ops.rotate_qk_ if "k" in bad else ops.rotate_)(**given)
    assert equal(tensors, before)


def test_bad_input(rng, angles):
    (q, k), how = draw(rng, torch.float32, 3, 1), halyard.torch.describe(angles)
    call_rotate = functools.partial(rotate, angles=angles, positions=0)
    for raised, words, call in (
            (halyard.Error, "layout", lambda: call_rotate(q, layout="tbhd")),
            (halyard.Error, "rotary_offset", lambda: call_rotate(q, rotary_offset=WIDTH)),
            (halyard.Error, "lie on cpu and meta", lambda: call_rotate(q, positions=torch.arange(5, device="meta"))),
            (Exception, "float64", lambda: torch.compile(call_rotate, fullgraph=True, backend="eager")(q.double())),
            (halyard.Error, "no_grad", lambda: ops.rotate_(q, how)),
            (halyard.Error, "no_grad", lambda: ops.rotate_qk_(q, k, how)),
            *((TypeError, "positions is a", functools.partial(call_rotate, q, positions=x)) for x in (True, [0, 1])),
            (TypeError, "q is a NoneType", functools.partial(call_rotate, None, positions=0)),
            *((TypeError, "angles", functools.partial(make, angles=None))
              for make in (halyard.torch.describe, functools.partial(rotate, q)))):
        with pytest.raises(raised, match=words):
            call()
