"""A server that labels text: ``python tag_server.py model.sklseq --port 8000``.

Standard library and an exported model only: SciPy and scikit-learn are not imported.

========================= ======================================================================
``POST /tag``             ``[["He", "ran"], ...]`` in JSON is answered by ``[["O", "O"], ...]``
``POST /stream``          a token a line, in a chunked body; a label a line as soon as it is final
========================= ======================================================================

Each connection has a thread, and one of them computes at a time. Requests that arrive meanwhile are
labelled together in the next call: the more clients, the larger the batches, without a timer.
"""

import argparse
import json
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Lock

from sklseq.runtime import load

MOST_SEQUENCES = 256  # in one call, so that no request waits long


class Batches:
    """A function of sequences, called once for all requests that wait."""

    def __init__(self, predict, most=MOST_SEQUENCES):
        self.predict, self.most, self.waiting, self.turn = predict, most, SimpleQueue(), Lock()

    def __call__(self, sequences):
        answer = Future()
        self.waiting.put((sequences, answer))
        with self.turn:  # whoever has it answers those that wait, too
            while not answer.done():
                self.answer(self.take())
        return answer.result()

    def take(self):
        batch, n = [], 0
        while n < self.most and not self.waiting.empty():
            batch.append(self.waiting.get())
            n += len(batch[-1][0])
        return batch

    def answer(self, batch):
        try:
            labels = iter(self.predict([x for sequences, _ in batch for x in sequences]))
        except Exception as error:  # of one request, which gets it
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                for one in batch:
                    self.answer([one])
            return
        for sequences, answer in batch:
            answer.set_result([next(labels) for _ in sequences])


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, in a thread of its own."""

    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # answers leave at once
    timeout = 60

    def do_POST(self):
        route = {"/tag": self.tag, "/stream": self.stream}.get(self.path)
        if route is None:
            self.send_error(404)
        else:
            route()

    def tag(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            sequences = json.loads(body)
            status, answer = 200, self.server.predict(sequences)
        except (ValueError, TypeError) as error:
            status, answer = 400, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        stream = self.server.decoder.stream(strategy="closure", max_latency=10)
        for token in self.lines():
            self.write_chunk(stream.push(token))
        self.write_chunk(stream.finish())
        self.wfile.write(b"0\r\n\r\n")

    def lines(self):
        """Lines of a chunked body, while it arrives."""
        left = b""
        while size := int(self.rfile.readline(), 16):
            *lines, left = (left + self.rfile.read(size)).split(b"\n")
            self.rfile.readline()
            yield from (line.decode() for line in lines)
        self.rfile.readline()

    def write_chunk(self, labels):
        if labels:
            text = "".join(f"{label}\n" for label in labels).encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    """A server to which many clients may connect at once."""

    request_queue_size = 128  # 5 by default: others get "connection reset"


def new_server(path, port=0, most=MOST_SEQUENCES):
    """A server of an exported model; ``serve_forever`` runs it."""
    server = Server(("127.0.0.1", port), Handler)
    server.decoder = load(path)
    server.predict = Batches(server.decoder.predict, most)
    return server


def main():
    parser = argparse.ArgumentParser(description="Label text over HTTP.")
    parser.add_argument("model", help="a file of sklseq.deployment.export")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument("--most", type=int, default=MOST_SEQUENCES, help="sequences in one call")
    args = parser.parse_args()
    server = new_server(args.model, args.port, args.most)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
