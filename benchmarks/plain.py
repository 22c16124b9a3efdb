"""The peer: a training step of the buffer as a user would write it with PyG, without this library."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import degree, dropout_edge

from benchmarks.graphs import Case


class PlainStep:
    """GCNConv on a COO edge index, ``dropout_edge``, two forward passes, Adam, and an evaluation."""

    def __init__(self, case: Case, gnn: nn.Module) -> None:
        self.case, self.data = case, case.data
        self.convs, self.norms, self.residuals = list(gnn.convs), list(gnn.norms), list(gnn.residuals)
        widths = [self.data.num_features, *(conv.out_channels for conv in self.convs)]
        self.weights = [nn.Parameter(torch.zeros(sum(widths[: i + 1]), widths[i + 1])) for i in range(len(self.convs))]
        self.optimizer = torch.optim.Adam(self.weights, lr=1e-2)
        for parameter in gnn.parameters():
            parameter.requires_grad_(False)
        with torch.no_grad():
            self.teacher = F.log_softmax(self.forward(self.data.edge_index, 0.0), -1)

    def forward(self, edges: Tensor, ratio: float) -> Tensor:
        """Logits of the buffered model."""
        inverse = 1 / (degree(edges[1], self.data.num_nodes) + 1)
        h, hidden = self.data.x, []
        for i, conv in enumerate(self.convs):
            hidden.append(h)
            dropped = F.dropout(h, ratio) if i else h
            out = conv(dropped, edges) + inverse.unsqueeze(-1) * (torch.cat(hidden, -1) @ self.weights[i])
            if self.residuals:
                out = out + self.residuals[i](dropped, edges)
            if i < len(self.convs) - 1:
                out = F.relu(self.norms[i](out) if self.norms else out)
            h = out
        return h

    def step(self) -> None:
        """One step and its evaluation."""
        data, ratio = self.data, self.case.dropout
        edges, _ = dropout_edge(data.edge_index, self.case.drop_edge, force_undirected=True)
        clean = F.log_softmax(self.forward(data.edge_index, ratio), -1)
        perturbed = F.log_softmax(self.forward(edges, ratio), -1)
        train = data.train_mask
        bias = F.kl_div(clean[train], self.teacher[train], reduction="batchmean", log_target=True)
        robust = F.kl_div(perturbed, clean, reduction="batchmean", log_target=True)
        self.optimizer.zero_grad()
        (bias + 0.5 * robust).backward()
        self.optimizer.step()
        with torch.no_grad():
            logits = self.forward(data.edge_index, 0.0)
            F.cross_entropy(logits[data.val_mask], data.y[data.val_mask]).item()
