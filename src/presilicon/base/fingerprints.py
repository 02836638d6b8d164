"""Digests of plain data: of texts, of files and folders, and of the bytes of arrays and tensors."""

import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

SAMPLED_BYTES = 1 << 30
"""Arrays and files up to this size count by every byte, larger ones by their size and evenly spaced pieces."""
_PIECES = 64
_PIECE_BYTES = 1 << 20


def hashed(kind: str, *parts: str) -> str:
    """The digest of texts in their order; texts of another kind have another one."""
    digest = sha256(kind.encode())
    for part in parts:
        digest.update(f"\0{len(part)} ".encode() + part.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def is_file(path: Path) -> bool:
    """Whether a path names a regular file; one that cannot be a path names none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def path_content(path: Path) -> str:
    """The contents of a file, or of all files in a folder; of a place where there is nothing, its name."""
    if is_file(path):
        return _file_content(path)
    if path.is_dir():
        # A folder of code, where results may stand too, is no data: what code takes from it counts by itself.
        if path.resolve() in (Path.cwd(), *Path.cwd().parents) or any(path.glob("*.py")):
            return hashed("folder of code")
        files = sorted(file for file in path.rglob("*") if is_file(file))
        sizes = [file.stat().st_size for file in files]
        names = [f"{file.relative_to(path).as_posix()} {size}" for file, size in zip(files, sizes, strict=True)]
        step = 1 if sum(sizes) <= SAMPLED_BYTES else -(-len(files) // _PIECES)
        return hashed("folder", *names, *map(_file_content, files[::step]))
    return hashed("nothing", str(path))


def _file_content(path: Path) -> str:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _sampled(size, lambda start, count: (file.seek(start), file.read(count))[1])
    except OSError as error:
        return hashed("unreadable", str(error.strerror))


def _sampled(size: int, read: Callable[[int, int], Any]) -> str:
    """The digest of bytes: of all of them, or of evenly spaced pieces of many."""
    digest = sha256(f"{size} ".encode())
    if size <= SAMPLED_BYTES:
        for start in range(0, size, _PIECE_BYTES):
            digest.update(read(start, min(_PIECE_BYTES, size - start)))
    else:
        for number in range(_PIECES):
            digest.update(read((size - _PIECE_BYTES) * number // (_PIECES - 1), _PIECE_BYTES))
    return digest.hexdigest()


def array_content(value: Any) -> str | None:
    """The type, shape and bytes of a tensor or an array; None for anything else."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    facts = ""
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_meta or value.is_sparse or value.is_quantized or value.layout != torch.strided:
            return hashed("tensor", str(value.dtype), str(tuple(value.shape))) if value.is_meta else None
        facts = f"{value.dtype} {value.requires_grad}"
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        value = plain.flatten().view(torch.uint8).numpy().reshape(-1) if plain.numel() else plain.numpy()
        shape = tuple(plain.shape)
    elif torch is not None and isinstance(value, torch.Generator):
        return hashed("generator", str(value.device), array_content(value.get_state()) or "")
    elif torch is not None and isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return hashed("torch", str(value))
    elif numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        facts, shape = value.dtype.str, value.shape
    else:
        return None
    flat = value.reshape(-1)  # a copy where the bytes are not in order
    data = flat.view("u1") if flat.nbytes else flat
    content = _sampled(flat.nbytes, lambda start, count: data[start : start + count].tobytes())
    return hashed("array", facts, str(shape), content)
