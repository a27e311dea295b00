"""Readers of tensors in `.npz`, safetensors, PyTorch and Keras files."""
