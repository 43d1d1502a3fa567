"""How overflow.onnx was made: a BERT encoder in fp16 that overflows in one feed-forward block.

    python examples/make_overflow.py examples/overflow.onnx

Needs torch and transformers; Winnow needs neither. The weights are random (seed 0). Both projections of
one feed-forward block are scaled up: in fp32 the next layer norm takes the scale out again, in fp16 a sum of products
passes 65504 and becomes Inf, and the norm makes it NaN.
"""

from __future__ import annotations

import sys

import torch
from transformers import BertConfig, BertModel

CULPRIT, SCALE = 5, 500.0


def main(path: str) -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=8,
        num_attention_heads=4,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    bert = BertModel(config).eval()
    with torch.no_grad():
        for parameter in bert.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
        bert.encoder.layer[CULPRIT].intermediate.dense.weight *= SCALE
        bert.encoder.layer[CULPRIT].output.dense.weight *= SCALE

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert.half()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            types = torch.zeros_like(input_ids)  # spares a GatherElements, which old reference evaluators get wrong
            return self.bert(input_ids, attention_mask, types).last_hidden_state

    tokens = torch.randint(0, 128, (1, 12), generator=torch.Generator().manual_seed(1))
    torch.onnx.export(
        Wrapped(),
        (tokens, torch.ones_like(tokens)),
        path,
        dynamo=False,
        opset_version=16,
        input_names=["input_ids", "attention_mask"],
        output_names=["last_hidden_state"],
    )


if __name__ == "__main__":
    main(sys.argv[1])
