"""Plain PyG: what a user would write with it, without this library."""

from __future__ import annotations

import itertools

import torch
import torch_geometric
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv
from torch_geometric.utils import degree, dropout_edge

from benchmarks.peers.protocol import CaseFile, Turns, run, sample
from paper.bases.convs import RandomWalkConv  # only its plain ``forward`` runs here


class GCN(nn.Module):
    """The base model, and the buffers' terms where there are any."""

    def __init__(self, case: CaseFile) -> None:
        super().__init__()
        s = case.settings
        conv = GCNConv if s.aggregation == "sym" else RandomWalkConv
        self.widths = [case.x.size(1), *[s.hidden] * (s.layers - 1), s.classes]
        pairs = list(itertools.pairwise(self.widths))
        self.convs = nn.ModuleList(conv(i, o) for i, o in pairs)
        self.residuals = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in pairs if s.residual)
        self.norms = nn.ModuleList(nn.LayerNorm(o) for _, o in pairs[:-1] if s.residual)
        self.buffers_: list[nn.Parameter] = []
        self.load_state_dict(case.weights)

    def add_buffers(self) -> list[nn.Parameter]:
        """A weight for every layer that reads all that came before it; the base is frozen."""
        self.requires_grad_(False)
        shapes = [(sum(self.widths[: i + 1]), self.widths[i + 1]) for i in range(len(self.convs))]
        self.buffers_ = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
        return self.buffers_

    def forward(self, x: Tensor, edge_index: Tensor, dropout: float = 0.0) -> Tensor:
        """Logits ``[N, C]``; a buffer reads the hidden states before they are dropped."""
        hidden: list[Tensor] = []
        inverse = 1 / (degree(edge_index[1], x.size(0)) + 1).unsqueeze(-1) if self.buffers_ else None
        for i, conv in enumerate(self.convs):
            hidden.append(x)
            dropped = F.dropout(x, dropout) if i and dropout else x
            out = conv(dropped, edge_index)
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
    gnn = GCN(case)
    with torch.no_grad():
        teacher = F.log_softmax(gnn(case.x, case.edge_index), -1)
    optimizer = torch.optim.Adam(gnn.add_buffers(), lr=s.lr)
    losses: list[float] = []
    while turns.next():
        edges, _ = dropout_edge(case.edge_index, s.drop_edge, force_undirected=True)
        clean = F.log_softmax(gnn(case.x, case.edge_index, s.dropout), -1)
        perturbed = F.log_softmax(gnn(case.x, edges, s.dropout), -1)
        bias = F.kl_div(clean[train], teacher[train], reduction="batchmean", log_target=True)
        robust = F.kl_div(perturbed, clean, reduction="batchmean", log_target=True)
        loss = bias + s.strength * robust
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            logits = gnn(case.x, case.edge_index)
            F.cross_entropy(logits[val], case.y[val]).item()
        losses.append(loss.item())
    turns.note(losses=losses)


def base(case: CaseFile, turns: Turns) -> None:
    """A training step of the base GCN and its evaluation."""
    s, train, val = case.settings, case.train_mask, case.val_mask
    gnn = GCN(case)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=s.base_lr, weight_decay=s.base_weight_decay)
    while turns.next():
        logits = gnn(case.x, case.edge_index, s.base_dropout)
        loss = F.cross_entropy(logits[train], case.y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = gnn(case.x, case.edge_index).argmax(-1) == case.y
            right[val].float().mean().item()
    turns.note(finite=all(bool(parameter.isfinite().all()) for parameter in gnn.parameters()))


def inference(case: CaseFile, turns: Turns) -> None:
    """The base GCN, without a buffer."""
    gnn = GCN(case).eval()
    logits: Tensor | None = None
    with torch.no_grad():
        while turns.next():
            logits = gnn(case.x, case.edge_index)
    if logits is not None:
        turns.note(logits=sample(logits))


if __name__ == "__main__":
    run({"step": step, "base": base, "inference": inference}, {"torch_geometric": torch_geometric.__version__})
