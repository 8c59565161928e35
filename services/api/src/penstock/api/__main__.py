"""Runs the api."""

from penstock.api.service import run
from penstock.common.service import service_main

if __name__ == "__main__":
    service_main("api", run)
