"""Takes the rotation out of com.microsoft's GroupQueryAttention, where onnxruntime-genai's models have it."""

from onnx import TensorProto, helper
from scope import attributes_of

INPUTS = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache",
          "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight",
          "k_norm_weight")
# What comes after the rotation and stays the node's. What is not here was not known when this was written.
KEPT = {"num_heads", "kv_num_heads", "scale", "softcap", "local_window_size", "causal", "smooth_softmax", "qk_output",
        "qk_norm_epsilon", "sliding_window_cache"}
ROTARY = {"do_rotary", "rotary_interleaved"}
QUANTISED = {"k_quant_type", "v_quant_type", "kv_cache_bit_width"}
QUANTISED_SENTENCE = "a key that is rounded otherwise may be another one in a quantised cache"
DTYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def inputs_of(node):
    """Name -> value, "" where it is left out."""
    return dict(zip(INPUTS, [*node.input, *[""] * len(INPUTS)]))


def rotates(node):
    return node.op_type == "GroupQueryAttention" and attributes_of(node).get("do_rotary", 0) in (1, None)


def why_not(node, scope):
    """Why the node has to stay as it is, or None."""
    attributes, inputs = attributes_of(node), inputs_of(node)
    for name, value in attributes.items():
        if value is None:
            return f"attribute {name} is its function's"
        if name in QUANTISED and value not in (b"NONE", 0):
            return f"{name} is {value}: {QUANTISED_SENTENCE}"
        if name not in KEPT | ROTARY | QUANTISED:
            return f"attribute {name} is unknown"
    if len(node.input) > len(INPUTS):
        return f"it has {len(node.input)} inputs, and {len(INPUTS)} are known"
    if attributes.get("rotary_interleaved", 0) not in (0, 1):
        return f"rotary_interleaved is {attributes['rotary_interleaved']}"
    heads = [attributes.get(name, 0) for name in ("num_heads", "kv_num_heads")]
    if min(heads) < 1:
        return f"num_heads and kv_num_heads are {heads[0]} and {heads[1]}"
    for name in "k_scale", "v_scale", "q_norm_weight", "k_norm_weight":
        if inputs[name]:
            return f"{name} is there, which is not applied outside"
    for name in "query", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache":
        if not inputs[name]:
            return f"{name} is missing"
    if bool(inputs["key"]) != bool(inputs["value"]):
        return "there is one of key and value, and not the other"
    return why_not_types(node, scope, heads[0] + (0 if inputs["key"] else 2 * heads[1]))


def why_not_types(node, scope, n_heads):
    inputs = inputs_of(node)
    cos, sin, x = (scope.type_of(inputs[name]) for name in ("cos_cache", "sin_cache", "query"))
    if not cos or not sin or len(cos[1]) != 2 or not cos[1][1]:
        return "it is not known how wide cos_cache is"
    if cos[0] not in DTYPES or sin[0] != cos[0] or sin[1] != cos[1] or (x and x[0] not in (0, cos[0])):
        return "cos_cache, sin_cache and query are not alike"
    if x and (len(x[1]) != 3 or (x[1][2] and (x[1][2] % n_heads or x[1][2] // n_heads < 2 * cos[1][1]))):
        return f"query is {x[1]}, which are not {n_heads} heads that cos_cache, {cos[1]}, fits"
    for name in "past_key", "past_value":
        past = scope.type_of(inputs[name])
        if past and past[0] not in (0, cos[0]):
            return f"{name} is not of query's type: {QUANTISED_SENTENCE}"
    return None


class Positions:
    """The positions of a scope's nodes: made once for all that have the same lengths."""

    def __init__(self, scope, new_name):
        self.scope, self.new_name, self.made = scope, new_name, {}

    def of(self, node, x):
        """(name, the nodes to put before this one, if they are not there yet); x has its batch rows and tokens"""
        inputs = inputs_of(node)
        lengths = [inputs[name] for name in ("seqlens_k", "total_sequence_length", "position_ids")]
        key = *lengths, self.scope.symbols_of(inputs["query"]) or inputs["query"]
        if key in self.made:
            return self.made[key], []
        self.made[key] = self.new_name("Positions")
        read = [x, *lengths] if lengths[2] else [x, *lengths[:2]]
        return self.made[key], [helper.make_node("Positions", read, [self.made[key]], domain="halyard")]


def take_apart(node, scope, positions, new_name, join):
    """(the nodes to put before the node, which rotates no longer; those of them that rotate; the nodes that are not
    needed). join(x, num_heads) is what Rewriter.join returns."""
    attributes, inputs = attributes_of(node), inputs_of(node)
    num_heads, kv_num_heads = attributes["num_heads"], attributes["kv_num_heads"]
    cos, sin = inputs["cos_cache"], inputs["sin_cache"]
    shared = {"interleaved": attributes.get("rotary_interleaved", 0),
              "rotary_embedding_dim": 2 * scope.type_of(cos)[1][1]}
    if inputs["key"]:
        tensors = [(n, *join(x, n)) for x, n in ((inputs["query"], num_heads), (inputs["key"], kv_num_heads))]
    else:
        tensors = [(num_heads + 2 * kv_num_heads, inputs["query"], "", [], [])]
        shared["rotated_heads"] = num_heads + kv_num_heads
    name, before = positions.of(node, tensors[0][1])
    made = []
    for index, (n_heads, x, weight, more, _) in enumerate(tensors):
        made.append(helper.make_node("RotaryEmbedding", [x, cos, sin, name, *([weight] if weight else [])],
                                     [new_name("RotaryEmbedding")], domain="halyard", num_heads=n_heads, **shared))
        made[-1].attribute.extend(more)
        node.input[index] = made[-1].output[0]
    for index, name in enumerate(INPUTS[:len(node.input)]):
        if name in ("cos_cache", "sin_cache", "position_ids"):
            node.input[index] = ""
    while not node.input[-1]:
        node.input.pop()
    kept = [a for a in node.attribute if a.name not in ROTARY]
    del node.attribute[:]
    node.attribute.extend(kept)
    return before + made, made, [gone for tensor in tensors for gone in tensor[-1]]
