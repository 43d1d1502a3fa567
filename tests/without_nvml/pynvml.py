"""Stands before nvidia-ml-py on the path, so that names of GPUs are taken as they are also where there are GPUs."""

raise ImportError("as if it were not installed")
