"""What every Penstock service shares."""

import os

# gRPC reads it when it is imported. Our children are started, never forked to go on with this process's connections;
# with it on, gRPC writes a line to stderr for each of them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
