"""OpenCL devices: kernels (`kernels/*.cl`), boards that build and launch them, and aten ops on top."""
