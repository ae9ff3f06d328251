"""A small shop: customers in PostgreSQL, visits in SQLite, and the fields of both in models.py."""
import http.server, json, os, sqlite3, subprocess, threading, urllib.request

import models


def ask(sql):
    """What PostgreSQL answers."""
    words = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", os.environ["SHOP"], "-c", sql]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        rows = ask(f"SELECT {', '.join(models.FIELDS)} FROM customers ORDER BY 1")
        with sqlite3.connect("visits.db") as visits:
            count = visits.execute(f"SELECT sum({models.VISITS}) FROM visits").fetchone()[0]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([rows, count]).encode())

    def log_message(self, *words):
        pass


if __name__ == "__main__":
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read().decode())
