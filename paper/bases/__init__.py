"""The base models of the paper: what they are, how they are trained, where trained ones are kept."""

from paper.bases.models import GNN, new
from paper.bases.store import kept
from paper.bases.training import Augmentation, Trained, train, train_new

__all__ = ["GNN", "Augmentation", "Trained", "kept", "new", "train", "train_new"]
