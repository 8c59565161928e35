"""Runs the compiler."""

from penstock.common.service import service_main
from penstock.compiler.service import run

if __name__ == "__main__":
    service_main("compiler", run)
