"""Writes exported.onnx, a small decoder of random weights as torch.onnx exports it: export_decoder.py exported.onnx

It was made with PyTorch 2.15.0 and onnxscript 0.7.2, which the tests themselves need not have.
"""

import sys

import onnx
import torch
from torch import nn
from torch.onnx.ops import rotary_embedding

WIDTH, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCABULARY, POSITIONS = 32, 2, 1, 16, 2, 40, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(n, eps=1e-6) for n in (WIDTH, WIDTH, HEAD_DIM, HEAD_DIM))
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, n * HEAD_DIM, bias=False) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.out = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, position_ids, cos, sin):
        n_batch, n_tokens, _ = x.shape
        q, k, v = (make(self.norms[0](x)).view(n_batch, n_tokens, -1, HEAD_DIM) for make in self.qkv)
        q, k, v = self.norms[2](q).transpose(1, 2), self.norms[3](k).transpose(1, 2), v.transpose(1, 2)
        q, k = (rotary_embedding(each, cos, sin, position_ids) for each in (q, k))
        future = torch.full((n_tokens, n_tokens), -torch.inf).triu(1)
        y = torch.softmax(q @ k.transpose(2, 3) * HEAD_DIM ** -0.5 + future, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(n_batch, n_tokens, -1))
        return x + self.down(nn.functional.silu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(POSITIONS), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, position_ids):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, position_ids, self.cos, self.sin)
        return self.head(x)


def main():
    torch.manual_seed(1)
    tokens, position_ids = torch.zeros(2, 8, dtype=torch.int64), torch.arange(16).view(2, 8)
    n_tokens = torch.export.Dim("n_tokens", min=2, max=POSITIONS)
    program = torch.onnx.export(Decoder().eval(), (tokens, position_ids), dynamo=True, opset_version=23,
                                dynamic_shapes={"tokens": {1: n_tokens}, "position_ids": {1: n_tokens}})
    model = program.model_proto
    for owner in (model.graph, *model.graph.input, *model.graph.output, *model.graph.node, *model.graph.value_info,
                  *model.graph.initializer):
        del owner.metadata_props[:]  # the machine's paths, among others
        owner.doc_string = ""
    onnx.save(model, sys.argv[1])


if __name__ == "__main__":
    main()
