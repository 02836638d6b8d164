"""Triton kernels compiled for an H200 where there is no GPU: up to machine code, without running them.

Code that a process runs after `START` and through `bare` launches its kernels on tensors of the CPU. Each one is
compiled by Triton and by NVIDIA's assembler, which Triton brings along, and must fit the shared memory of the chip.
What it would compute is left out; the tests run the same code in Triton's interpreter for that.
"""

import ast

COUNT = "from triton.runtime.jit import JITFunction; print(len(JITFunction.binaries))"
START = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

SHARED_BYTES = 227 << 10


class Hopper:
    class utils:
        load_binary = staticmethod(lambda name, kernel, shared, device: (object(), object(), 0, 0, 1024))
        get_device_properties = staticmethod(lambda device: {"max_shared_mem": SHARED_BYTES})

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def launcher_cls(self, source, metadata):
        return lambda *args, **options: None


def compile_only(self, *args, grid, warmup, **options):
    kernel = compiled(self, *args, grid=grid, warmup=True, **options)
    assert kernel.metadata.shared <= SHARED_BYTES, (self.fn.__name__, kernel.metadata.shared)
    JITFunction.binaries.add(kernel.asm["cubin"])
    return kernel


compiled, JITFunction.run, JITFunction.binaries = JITFunction.run, compile_only, set()
driver.set_active(Hopper())
torch.testing.assert_close = lambda *args, **options: None
"""


class _Bare(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.Expr(node.test)


def bare(code: str) -> str:
    """The code without its asserts, but with what they call."""
    return ast.unparse(ast.fix_missing_locations(_Bare().visit(ast.parse(code))))
