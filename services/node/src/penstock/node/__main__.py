"""Runs a node."""

from penstock.common.service import service_main
from penstock.node.service import run

if __name__ == "__main__":
    service_main("node", run)
