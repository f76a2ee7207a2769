"""What is known of a model's values: the nodes of a graph or of a function, and who makes and reads what."""

import collections

import onnx
from onnx import helper, numpy_helper

ONNX = ("", "ai.onnx")
MICROSOFT = "com.microsoft"


def attributes_of(node):
    return {a.name: None if a.ref_attr_name else helper.get_attribute_value(a) for a in node.attribute}


def subgraphs_of(node):
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


class Scope:
    """The nodes of a graph or of a function, and what is known of their values."""

    def __init__(self, owner, outer, types):
        self.owner, self.outer, self.types = owner, outer, types
        self.symbols = symbols_of(owner)
        self.initializers = {t.name: t for t in getattr(owner, "initializer", ())}
        self.read = self.count_reads()
        self.maker = {name: node for node in owner.node for name in node.output if name}
        self.outputs = {getattr(o, "name", o) for o in owner.output}

    def count_reads(self):
        """How often each value is read, in subgraphs too: a name of theirs that hides one of these counts as well."""
        counts = collections.Counter()
        pending = [self.owner]
        while pending:
            owner = pending.pop()
            for node in owner.node:
                counts.update(node.input)
                pending.extend(subgraphs_of(node))
            if owner is not self.owner:
                counts.update(o.name for o in owner.output)
        return counts

    def constant(self, name):
        """The array that a value always is, or None."""
        if name in self.initializers:
            return numpy_helper.to_array(self.initializers[name])
        node = self.maker.get(name)
        if node is not None and node.op_type == "Constant" and node.domain in ONNX:
            value = attributes_of(node).get("value")
            return None if value is None else numpy_helper.to_array(value)
        return self.outer.constant(name) if self.outer and node is None and name not in self.types else None

    def type_of(self, name):
        """(element type, shape with None for what is not known), or None."""
        if name in self.initializers:
            tensor = self.initializers[name]
            return tensor.data_type, list(tensor.dims)
        if name in self.types:
            return self.types[name]
        return self.outer.type_of(name) if self.outer and name not in self.maker else None

    def symbols_of(self, name):
        """The names or numbers of a value's batch rows and tokens, or None: values that have the same are alike."""
        return self.symbols.get(name)

    def before(self, name):
        """The node that makes a value, if it is read once and here, and is no output."""
        node = self.maker.get(name)
        return node if node is not None and self.read[name] == 1 and name not in self.outputs else None


def names_of(model):
    """The names of all values, in subgraphs and functions too."""
    names, pending = set(), [model.graph, *model.functions]
    while pending:
        owner = pending.pop()
        names.update(getattr(value, "name", value) for value in (*owner.input, *getattr(owner, "initializer", ())))
        for node in owner.node:
            names.update(node.output)
            pending.extend(subgraphs_of(node))
    return names


def symbols_of(owner):
    found = {}
    for info in (*getattr(owner, "input", ()), *owner.value_info) if isinstance(owner, onnx.GraphProto) else ():
        dims = [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim[:2]]
        if len(dims) == 2 and all(dims):
            found[info.name] = tuple(dims)
    return found


def types_of(graph):
    types = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        tensor = info.type.tensor_type
        if tensor.HasField("shape"):
            types[info.name] = (tensor.elem_type,
                                [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim])
    return types
