"""Plugin of pytest: kazoo's tests get the server at TENURE_ADDRESS, which nobody may stop."""
import os

from kazoo.testing import harness


class Server:
    address = os.environ["TENURE_ADDRESS"]
    running = True


harness.get_global_cluster = lambda: [Server()]
