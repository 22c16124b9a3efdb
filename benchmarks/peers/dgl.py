"""DGL 1.1.3: the same steps with its ``GraphConv`` and ``DropEdge``; needs only torch, dgl and numpy.

As DGL's users have it, every graph carries a self-loop at each node, and ``DropEdge`` drops the two directions of an
edge each by itself.
"""

from __future__ import annotations

import itertools

import dgl
import torch
from dgl.nn.pytorch import GraphConv
from dgl.transforms import DropEdge
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.protocol import CaseFile, Turns, run, sample


class GCN(nn.Module):
    """The base model, and the buffers' terms where there are any."""

    def __init__(self, case: CaseFile) -> None:
        super().__init__()
        s = case.settings
        self.widths = [case.x.size(1), *[s.hidden] * (s.layers - 1), s.classes]
        pairs = list(itertools.pairwise(self.widths))
        self.convs = nn.ModuleList(
            GraphConv(i, o, norm="both" if s.aggregation == "sym" else "right") for i, o in pairs
        )
        self.residuals = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in pairs if s.residual)
        self.norms = nn.ModuleList(nn.LayerNorm(o) for _, o in pairs[:-1] if s.residual)
        self.buffers_: list[nn.Parameter] = []
        self.load_state_dict(_as_dgl(case.weights))

    def add_buffers(self) -> list[nn.Parameter]:
        """A weight for every layer that reads all that came before it; the base is frozen."""
        self.requires_grad_(False)
        shapes = [(sum(self.widths[: i + 1]), self.widths[i + 1]) for i in range(len(self.convs))]
        self.buffers_ = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
        return self.buffers_

    def forward(self, graph: dgl.DGLGraph, x: Tensor, dropout: float = 0.0) -> Tensor:
        """Logits ``[N, C]``; a buffer reads the hidden states before they are dropped."""
        hidden: list[Tensor] = []
        inverse = 1 / graph.in_degrees().float().unsqueeze(-1) if self.buffers_ else None  # self-loops are counted
        for i, conv in enumerate(self.convs):
            hidden.append(x)
            dropped = F.dropout(x, dropout) if i and dropout else x
            out = conv(graph, dropped)
            if inverse is not None:
                out = out + inverse * (torch.cat(hidden, -1) @ self.buffers_[i])
            if self.residuals:
                out = out + self.residuals[i](dropped)
            if i < len(self.convs) - 1:
                out = F.relu(self.norms[i](out) if self.norms else out)
            x = out
        return x


def step(case: CaseFile, turns: Turns) -> None:
    """Two passes, Adam, and an evaluation."""
    s, train, val = case.settings, case.train_mask, case.val_mask
    gnn, without_loops = GCN(case), _graph(case)
    whole, drop = dgl.add_self_loop(without_loops), DropEdge(s.drop_edge)
    with torch.no_grad():
        teacher = F.log_softmax(gnn(whole, case.x), -1)
    optimizer = torch.optim.Adam(gnn.add_buffers(), lr=s.lr)
    losses: list[float] = []
    while turns.next():
        part = dgl.add_self_loop(drop(without_loops))
        clean = F.log_softmax(gnn(whole, case.x, s.dropout), -1)
        perturbed = F.log_softmax(gnn(part, case.x, s.dropout), -1)
        bias = F.kl_div(clean[train], teacher[train], reduction="batchmean", log_target=True)
        robust = F.kl_div(perturbed, clean, reduction="batchmean", log_target=True)
        loss = bias + s.strength * robust
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            logits = gnn(whole, case.x)
            F.cross_entropy(logits[val], case.y[val]).item()
        losses.append(loss.item())
    turns.note(losses=losses)


def base(case: CaseFile, turns: Turns) -> None:
    """A training step of the base GCN and its evaluation."""
    s, train, val = case.settings, case.train_mask, case.val_mask
    gnn, graph = GCN(case), dgl.add_self_loop(_graph(case))
    optimizer = torch.optim.Adam(gnn.parameters(), lr=s.base_lr, weight_decay=s.base_weight_decay)
    while turns.next():
        logits = gnn(graph, case.x, s.base_dropout)
        loss = F.cross_entropy(logits[train], case.y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = gnn(graph, case.x).argmax(-1) == case.y
            right[val].float().mean().item()
    turns.note(finite=all(bool(parameter.isfinite().all()) for parameter in gnn.parameters()))


def inference(case: CaseFile, turns: Turns) -> None:
    """The base GCN, without a buffer."""
    gnn, graph = GCN(case).eval(), dgl.add_self_loop(_graph(case))
    logits: Tensor | None = None
    with torch.no_grad():
        while turns.next():
            logits = gnn(graph, case.x)
    if logits is not None:
        turns.note(logits=sample(logits))


def _graph(case: CaseFile) -> dgl.DGLGraph:
    source, target = case.edge_index
    return dgl.graph((source, target), num_nodes=case.num_nodes)


def _as_dgl(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """``GraphConv`` has its weight by input rows, ``[in, out]``."""
    renamed = {}
    for name, value in weights.items():
        is_map = name.endswith(".lin.weight")
        renamed[name.replace(".lin.weight", ".weight")] = value.t() if is_map else value
    return renamed


if __name__ == "__main__":
    run({"step": step, "base": base, "inference": inference}, {"dgl": dgl.__version__})
