"""What several kernels share: the kernel itself, the original it stands for, rows, strides, Pillow."""
