"""Runs the controller."""

from penstock.common.service import service_main
from penstock.controller.service import run

if __name__ == "__main__":
    service_main("controller", run)
