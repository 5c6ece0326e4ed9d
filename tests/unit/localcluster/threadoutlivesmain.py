"""A process whose main thread has ended while another thread still holds a port.

python -m tests.unit.localcluster.threadoutlivesmain PORT_FILE"""

from __future__ import annotations

import ctypes
import socket
import sys
import threading
from pathlib import Path


def hold(port_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port_file.write_text(str(server.getsockname()[1]))
        server.accept()


if __name__ == "__main__":
    threading.Thread(target=hold, args=(Path(sys.argv[1]),)).start()
    ctypes.CDLL(None).pthread_exit(None)
