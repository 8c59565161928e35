"""`python -m penstock.worker`."""

from __future__ import annotations

from penstock.common.service import service_main
from penstock.worker.service import main

if __name__ == "__main__":
    service_main("worker", main)
