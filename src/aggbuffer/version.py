"""The version of the library, written into every file it saves, and those of what it runs on."""

import platform

__version__ = "0.1.0"


def library_versions() -> dict[str, str]:
    """This library, torch, PyG and Python."""
    import torch
    import torch_geometric

    return {
        "aggbuffer": __version__,
        "torch": str(torch.__version__),
        "torch-geometric": str(torch_geometric.__version__),
        "python": platform.python_version(),
    }
