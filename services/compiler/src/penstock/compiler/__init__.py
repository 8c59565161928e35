"""SQL in, Program out, with diagnostics."""

from penstock.compiler.compile import Compilation, compile_query

__all__ = ["Compilation", "compile_query"]
