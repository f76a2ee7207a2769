"""rewrite.py IN.onnx OUT.onnx: has a model's RotaryEmbedding nodes computed by libhalyard_onnxruntime.so.

Nodes of ONNX's own domain (opset 23 and later) and of com.microsoft, MRotaryEmbedding too, become
halyard::RotaryEmbedding, and GroupQueryAttention that rotates gets such nodes before it instead. A transposition
[batch, tokens, heads, head_dim] -> [batch, heads, tokens, head_dim] before one, and an RMSNorm of each head before it
or before that, are joined with it where nothing else reads what lies between. Subgraphs and functions are searched as
well. It prints what was replaced, and what was left and why; IN is never written to.

  --exact FILE   the angles of these frequencies, which "halyard frequencies --config config.json" prints, take the
                 place of the model's tables of cos and sin: exact at every position that these have. Refused where a
                 table is not that of these frequencies, as near as float32 angles come to it
  --no-join      replace rotations alone
  --no-attention leave GroupQueryAttention as it is
  --force        write over OUT
"""

import argparse
import collections
import itertools
import json
import pathlib
import sys

import attention
import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from scope import MICROSOFT, ONNX, Scope, attributes_of, names_of, subgraphs_of, types_of

DOMAIN = "halyard"
ATTRIBUTES = {"interleaved", "num_heads", "rotary_embedding_dim"}
AXES = {"mrope_section", "mrope_layout"}  # MRotaryEmbedding's
# What com.microsoft's has beside: this value is its default.
IGNORED = {"scale": 1.0, "is_packed_batching": 0}
NORMS = {("RMSNormalization", domain) for domain in ONNX} | {
    ("SimplifiedLayerNormalization", domain) for domain in (*ONNX, MICROSOFT)}
ROTATIONS = {("RotaryEmbedding", domain) for domain in (*ONNX, MICROSOFT)} | {("MRotaryEmbedding", MICROSOFT)}


class Refusal(Exception):
    """A sentence for the user: nothing has been written."""


class Frequencies:
    """What --exact names."""

    def __init__(self, path):
        try:
            told = json.loads(pathlib.Path(path).read_text())
            self.inv_freq = np.array(told["inv_freq"], dtype=np.float64)
            self.factor = float(told.get("attention_factor", 1.0))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refusal(f"{path} does not say frequencies: {error!r}") from error

    def check(self, name, table, function):
        """Refuses a table that is not made of these frequencies. An angle that was made in float32 is off by a rounding
        of the frequency and one of the product, and its cos or sin by one of their own and by that of the dtype."""
        if table.ndim != 2 or table.shape[1] != len(self.inv_freq):
            raise Refusal(f"{name} is {list(table.shape)}, but there are {len(self.inv_freq)} frequencies")
        eps = {2: 2.0**-10, 4: 2.0**-22}[table.dtype.itemsize]
        for first in range(0, len(table), 4096):
            some = np.asarray(table[first : first + 4096], dtype=np.float64)
            angles = np.arange(first, first + len(some))[:, None] * self.inv_freq
            off = np.abs(some - self.factor * function(angles))
            allowed = self.factor * (np.abs(angles) * 2.0**-22 + eps)
            if not (off <= allowed).all():
                row, pair = np.unravel_index(np.nanargmax(np.where(np.isnan(off), np.inf, off - allowed)), off.shape)
                raise Refusal(f"{name} is not of these frequencies: at position {first + row}, pair {pair}, it is "
                              f"{some[row, pair]:.9g}, and not {self.factor * function(angles[row, pair]):.9g}")


class Rewriter:
    def __init__(self, model, exact=None, joins=True, attention=True):
        self.model, self.exact, self.joins, self.takes_attention = model, exact, joins, attention
        self.names = names_of(model)
        self.replaced, self.left, self.joined = (collections.Counter() for _ in range(3))
        self.own = {(f.domain, f.name) for f in model.functions}

    def rewrite(self):
        try:
            types = types_of(onnx.shape_inference.infer_shapes(self.model).graph)
        except Exception:  # noqa: BLE001  where inference fails, what the model itself says has to do
            types = types_of(self.model.graph)
        self.walk(self.model.graph, None, types)
        for function in self.model.functions:
            n_before = self.replaced.total()
            self.walk(function, None, {})
            self.import_domain(function, self.replaced.total() > n_before)
        self.import_domain(self.model, self.replaced.total() > 0)

    @staticmethod
    def import_domain(owner, is_used):
        if is_used and DOMAIN not in {o.domain for o in owner.opset_import}:
            owner.opset_import.append(helper.make_opsetid(DOMAIN, 1))

    def new_name(self, what):
        """A name that the model does not have."""
        name = next(n for n in (f"halyard/{what}_{i}" for i in itertools.count(1)) if n not in self.names)
        self.names.add(name)
        return name

    def walk(self, owner, outer, types):
        scope = Scope(owner, outer, types)
        positions = attention.Positions(scope, self.new_name)
        gone, unread, before = [], set(), {}
        for node in owner.node:
            for graph in subgraphs_of(node):
                self.walk(graph, scope, types_of(graph))
            is_attention = self.takes_attention and node.domain == MICROSOFT and attention.rotates(node)
            if not is_attention and (node.op_type, node.domain) not in ROTATIONS:
                continue
            why_not = self.why_not(node, scope)
            if why_not:
                self.left[why_not] += 1
                continue
            if is_attention:
                before[node.output[0]] = self.replace_attention(node, scope, positions, gone, unread)
            else:
                self.replaced[node.domain or "ai.onnx"] += 1
                self.replace(node, scope, gone, unread)
        for node in gone:
            owner.node.remove(node)
        for index, node in reversed(list(enumerate(owner.node))):
            for new in reversed(before.get(node.output[0] if node.output else "", ())):
                owner.node.insert(index, new)
        if isinstance(owner, onnx.GraphProto):
            reads = Scope(owner, outer, {}).read
            inputs = {i.name for i in owner.input}
            for name in unread & set(scope.initializers) - inputs - scope.outputs:
                if reads[name] == 0:
                    owner.initializer.remove(scope.initializers[name])

    def why_not(self, node, scope):
        if (node.domain, node.op_type) in self.own:
            return "the model has a function of this name"
        if node.op_type == "GroupQueryAttention":
            return attention.why_not(node, scope)
        attributes = attributes_of(node)
        known = ATTRIBUTES | (AXES if node.op_type == "MRotaryEmbedding" else set())
        for name, value in attributes.items():
            if name in IGNORED and node.domain == MICROSOFT:
                if value != IGNORED[name] and (name == "scale" or node.op_type == "MRotaryEmbedding"):
                    return f"{name} is {value}, which ONNX Runtime's CPU does not apply"
            elif name not in known:
                return f"attribute {name} is unknown"
        cos = scope.type_of(self.inputs_of(node)[1])
        rotary_dim = attributes.get("rotary_embedding_dim")
        if cos and cos[1] and cos[1][-1] and rotary_dim and 2 * cos[1][-1] != rotary_dim:
            return f"cos_cache is {2 * cos[1][-1]} wide, but rotary_embedding_dim {rotary_dim}"
        return None

    def replace_attention(self, node, scope, positions, gone, unread):
        """The nodes to put before a GroupQueryAttention, which no longer rotates."""
        inputs = attention.inputs_of(node)
        cos_type = scope.type_of(inputs["cos_cache"])

        def join(x, num_heads):
            return self.join(x, scope, cos_type, num_heads) if self.joins else (x, "", [], [])

        before, rotations, joined = attention.take_apart(node, scope, positions, self.new_name, join)
        gone += joined
        for rotation in rotations:
            self.make_exact(rotation, scope, unread)
        self.replaced["com.microsoft inside GroupQueryAttention"] += 1
        return before

    @staticmethod
    def inputs_of(node):
        """X, cos_cache, sin_cache, position_ids."""
        names = [*node.input, "", ""][:4]
        return [names[0], names[2], names[3], names[1]] if node.domain == MICROSOFT else names

    def replace(self, node, scope, gone, unread):
        x, cos, sin, positions = self.inputs_of(node)
        kept = [a for a in node.attribute if a.name in ATTRIBUTES | AXES]
        num_heads = attributes_of(node).get("num_heads", 0)
        weight = ""
        if self.joins:
            x, weight, more, joined = self.join(x, scope, scope.type_of(cos), num_heads)
            kept += more
            gone += joined
        inputs = [x, cos, sin, positions, weight]
        while not inputs[-1]:
            inputs.pop()
        del node.input[:], node.attribute[:]
        node.input.extend(inputs)
        node.attribute.extend(kept)
        node.op_type, node.domain = "RotaryEmbedding", DOMAIN
        self.make_exact(node, scope, unread)

    def make_exact(self, node, scope, unread):
        """Puts the frequencies that the user named in the place of a node's tables."""
        if not self.exact:
            return
        if len(node.input) < 4 or not node.input[3] or AXES & set(attributes_of(node)):
            self.joined["kept their tables, since they have no position_ids or several axes"] += 1
            return
        for index, function in (1, np.cos), (2, np.sin):
            name = node.input[index]
            table = scope.constant(name)
            if table is None:
                raise Refusal(f"{name} is not a constant, so --exact cannot tell what it is made of")
            self.exact.check(name, table, function)
            unread.add(name)
            node.input[index] = ""
        node.attribute.extend([
            helper.make_attribute("inv_freq", numpy_helper.from_array(self.exact.inv_freq)),
            helper.make_attribute("attention_factor", self.exact.factor),
            helper.make_attribute("n_positions", len(table))])
        self.joined["tables became frequencies"] += 1

    def join(self, x, scope, cos_type, num_heads):
        """What else the node does: its input then, the norm's weight, attributes, and the nodes that are not needed."""
        inside = self.norm_between_reshapes(x, scope, cos_type, num_heads)
        if inside:
            self.joined["norms joined"] += 1
            return inside
        attributes, nodes, weight = [], [], ""
        node = scope.before(x)
        is_split = len((scope.type_of(x) or (0, ()))[1]) == 4
        if node is not None and node.op_type == "Transpose" and node.domain in ONNX:
            if list(attributes_of(node).get("perm") or ()) != [0, 2, 1, 3]:
                return x, "", [], []
            attributes.append(helper.make_attribute("tokens_first", 1))
            nodes.append(node)
            self.joined["transpositions joined"] += 1
            is_split = True
            x = node.input[0]
            node = scope.before(x)
        if node is not None and (node.op_type, node.domain) in NORMS and is_split and \
                self.is_of_heads(node, scope, cos_type):
            epsilon = attributes_of(node).get("epsilon", 1e-5)
            attributes.append(helper.make_attribute("epsilon", epsilon))
            nodes.append(node)
            self.joined["norms joined"] += 1
            x, weight = node.input[0], node.input[1]
        return x, weight, attributes, nodes

    def norm_between_reshapes(self, x, scope, cos_type, num_heads):
        """As join, of [batch, tokens, heads * head_dim] -> [batch, …, head_dim] -> norm -> back, or None."""
        last = scope.before(x)
        norm = scope.before(last.input[0]) if last is not None and last.op_type == "Reshape" else None
        if norm is None or (norm.op_type, norm.domain) not in NORMS or not self.is_of_heads(norm, scope, cos_type):
            return None
        first = scope.before(norm.input[0])
        if first is None or first.op_type != "Reshape" or any(
                node.domain not in ONNX or attributes_of(node).get("allowzero") for node in (first, last)):
            return None
        split, back = (scope.constant(node.input[1]) for node in (first, last))
        source, head_dim = scope.type_of(first.input[0]), scope.type_of(norm.input[1])[1][0]
        if split is None or back is None or source is None or len(source[1]) != 3 or not source[1][2]:
            return None
        width, heads = source[1][2], num_heads or source[1][2] // head_dim
        if heads * head_dim != width or split[0] != 0 or split[-1] != head_dim or len(back) != 3 or \
                back[0] != 0 or back[-1] != width or (not num_heads and 2 * cos_type[1][-1] != head_dim):
            return None
        epsilon = helper.make_attribute("epsilon", attributes_of(norm).get("epsilon", 1e-5))
        return first.input[0], norm.input[1], [epsilon], [first, norm, last]

    @staticmethod
    def is_of_heads(node, scope, cos_type):
        """Whether a norm is one of each head's elements, by a weight [head_dim] of the type that cos has, as x then."""
        attributes = attributes_of(node)
        if any(attributes.get(name, default) != default for name, default in (("axis", -1), ("stash_type", 1))):
            return False
        weight = scope.type_of(node.input[1])
        return (len([o for o in node.output if o]) == 1 and None not in attributes.values() and weight is not None
                and cos_type is not None and weight[0] == cos_type[0] and len(weight[1]) == 1
                and weight[1][0] not in (None, 1))


def has_external_data(model):
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        if any(t.data_location == TensorProto.EXTERNAL for t in graph.initializer):
            return True
        for node in graph.node:
            graphs.extend(subgraphs_of(node))
    return False


def is_valid(model):
    try:
        onnx.checker.check_model(model)
    except Exception:  # noqa: BLE001  whatever the checker does not know
        return False
    return True


def rewrite_file(source, target, exact=None, joins=True, force=False, attention=True):
    """Returns the Rewriter, which has the counts. Raises Refusal, or what onnx.load raises."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    data = target.with_name(target.name + ".data")
    if target.exists() and target.samefile(source):
        raise Refusal(f"{target} is the model that is read")
    is_external = has_external_data(onnx.load(source, load_external_data=False))
    for path in (target, data) if is_external else (target,):
        if path.exists() and not force:
            raise Refusal(f"{path} exists; --force writes over it")
    model = onnx.load(source)
    if not model.HasField("graph"):  # of which an empty file is an example
        raise Refusal(f"{source} is no ONNX model")
    was_valid = not is_external and is_valid(model)
    rewriter = Rewriter(model, Frequencies(exact) if exact else None, joins, attention)
    rewriter.rewrite()
    if was_valid:
        onnx.checker.check_model(model)
    data.unlink(missing_ok=True)  # onnx would append to it
    onnx.save(model, target, save_as_external_data=is_external, location=data.name if is_external else None)
    return rewriter


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN.onnx")
    parser.add_argument("target", metavar="OUT.onnx")
    parser.add_argument("--exact", metavar="FILE")
    parser.add_argument("--no-join", action="store_true")
    parser.add_argument("--no-attention", action="store_true")
    parser.add_argument("--force", action="store_true")
    arguments = parser.parse_args()
    try:
        done = rewrite_file(arguments.source, arguments.target, arguments.exact, not arguments.no_join, arguments.force,
                            not arguments.no_attention)
    except DecodeError:
        print(f"rewrite.py: {arguments.source} is no ONNX model", file=sys.stderr)
        return 1
    except (Refusal, OSError, onnx.checker.ValidationError) as error:
        print(f"rewrite.py: {error}", file=sys.stderr)
        return 1
    print(f"replaced {done.replaced.total()}, left {done.left.total()}")
    for count, what in [(n, f"of {domain}") for domain, n in done.replaced.items()] + [
            (n, what) for what, n in done.joined.items()] + [(n, f"left: {why}") for why, n in done.left.items()]:
        print(f"  {count} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
