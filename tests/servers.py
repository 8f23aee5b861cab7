"""A web server on this machine for as long as a test needs one."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def serving(handler):
    """The address of a server whose requests `handler`, a class, answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
