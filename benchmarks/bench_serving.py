"""Texts that a second of the server's processor labels: ``bench_serving.py --figure FILE``.

``examples/tag_server.py`` with the model of the manual's page "A server of labels". Clients are
threads that send a text of ten tokens and wait for its labels. Processor time of the server is read
from /proc (Linux), and depends less on other work of the machine than the time by the clock.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from _common import header, row
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_contacts
from sklseq.deployment import export
from sklseq.features import TokenFeatures, WindowFeatures

SERVER = Path(__file__).parents[1] / "examples" / "tag_server.py"
CLIENTS, SIZES = [1, 2, 4, 8, 16, 32], [1, 4, 16, 64, 256]
ROUNDS = 5  # the best of each row


def processor_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_clients(port, body, n, seconds):
    """Number of requests that n clients get answered."""

    def client(_):
        end, done = time.perf_counter() + seconds, 0
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            while time.perf_counter() < end:
                connection.request("POST", "/tag", body)
                json.loads(connection.getresponse().read())
                done += 1
        return done

    with ThreadPoolExecutor(n) as clients:
        return sum(clients.map(client, range(n)))


def measure(process, port, cases, seconds):
    """Texts labelled in a second of the server's processor time, of each (clients, texts)."""
    for n, texts in cases:
        body, rates = json.dumps(texts), []
        for _ in range(ROUNDS):
            before, start = processor_seconds(process), time.perf_counter()
            done = run_clients(port, body, n, seconds) * len(texts)
            clock = time.perf_counter() - start
            rates.append((done / (processor_seconds(process) - before), done / clock))
        best = [max(column) for column in zip(*rates)]
        row(n, len(texts), *(f"{rate:,.0f}" for rate in best))
        yield best[0]


def draw(by_clients, by_size, path):
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    panels = [(CLIENTS, by_clients, "clients, one text a request"),
              (SIZES, by_size, "texts a request, one client")]  # fmt: skip
    for ax, (x, rates, name) in zip(axes, panels):
        ax.plot(x, rates, "o-", color="#0072B2")
        ax.set(xlabel=name, xscale="log", ylim=(0, None))
        ax.set_xticks(x, x)
        ax.minorticks_off()
    axes[0].set_ylabel("texts per second of\nthe server's processor")
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description="Speed of the served example.")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--figure", help="also draw the rates to this file")
    args = parser.parse_args()
    X, y = make_contacts(60, random_state=0)
    words = [x["w"] for x in X]
    model = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger()).fit(words[:50], y[:50])
    texts = [w[:10] for w in words if len(w) >= 10]
    many = [texts[k % len(texts)] for k in range(max(SIZES))]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.sklseq")
        export(model, path)
        command = [sys.executable, str(SERVER), path]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            port = int(process.stdout.readline())
            header("clients", "texts a request", "texts a processor second", "by the clock")
            clients = [(n, many[:1]) for n in CLIENTS]
            by_clients = list(measure(process, port, clients, args.seconds))
            sizes = [(1, many[:n]) for n in SIZES]
            by_size = list(measure(process, port, sizes, args.seconds))
        finally:
            process.terminate()
            process.communicate()
    if args.figure:
        draw(by_clients, by_size, args.figure)


if __name__ == "__main__":
    main()
