"""
A server of labels
==================

Export a trained model, serve it over HTTP with the standard library, and measure how many requests
it answers. The server, ``examples/tag_server.py``, has a route that labels batches and one that
labels a stream of tokens.
"""

# %%
# A model of addresses and telephone numbers in documents, exported to one file.
import atexit
import http.client
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_contacts
from sklseq.deployment import export
from sklseq.features import TokenFeatures, WindowFeatures

X, y = make_contacts(60, random_state=0)
words = [x["w"] for x in X]
model = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger()).fit(words[:50], y[:50])
path = os.path.join(tempfile.mkdtemp(), "contacts.sklseq")
export(model, path)

# %%
# The server is a process of its own. It prints its port when it is ready. Requests that wait are
# answered by one call:
#
# .. literalinclude:: ../../examples/tag_server.py
#     :pyobject: Batches
here = Path(__file__).parent if "__file__" in globals() else Path.cwd()
command = [sys.executable, str(here / "tag_server.py"), path]


def start_server():
    """The process, and a connection to it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(process.terminate)  # also after an error
    return process, http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()))


def stop_server(process, connection):
    connection.close()
    process.terminate()
    process.communicate()


def tag(connection, sequences):
    """The answer to one request."""
    connection.request("POST", "/tag", json.dumps(sequences))
    return json.loads(connection.getresponse().read())


server, connection = start_server()
assert tag(connection, words[50:]) == model.predict(words[50:])

# %%
# The other route: tokens go out one by one, and labels come back before the last token is sent.
connection.putrequest("POST", "/stream")
connection.putheader("Transfer-Encoding", "chunked")
connection.endheaders()


def send(token):
    line = f"{token}\n".encode()
    connection.send(b"%x\r\n%s\r\n" % (len(line), line))


document, streamed = words[50], []
send(document[0])
answer = connection.getresponse()
for token in document[1:40]:
    send(token)
streamed.append(answer.readline())  # while tokens are still to be sent
for token in document[40:]:
    send(token)
connection.send(b"0\r\n\r\n")
streamed += answer.readlines()
labels = [line.decode().strip() for line in streamed]
print(
    f"{np.mean(np.array(labels) == model.predict([document])[0]):.3f} of the labels as by predict"
)


# %%
# Throughput: clients that send the next short request when the last is answered.
lines = [w[k : k + 10] for w in words[50:] for k in range(0, len(w) - 10, 10)]
seconds = float(os.environ.get("SECONDS", 1.0))


def client(number):
    end, done = perf_counter() + seconds, []
    with closing(http.client.HTTPConnection("127.0.0.1", connection.port)) as own:
        while (start := perf_counter()) < end:
            tag(own, [lines[(number + len(done)) % len(lines)]])
            done.append(perf_counter() - start)
    return done


n_clients = [1, 2, 4, 8, 16]
rates, delays, n_requests = [], [], 0
for n in n_clients:
    with ThreadPoolExecutor(n) as clients:
        times = np.concatenate(list(clients.map(client, range(n))))
    n_requests += len(times)
    rates.append(len(times) / seconds)
    delays.append(1e3 * np.percentile(times, [50, 99]))
    print(f"{n:2} clients: {rates[-1]:6.0f} requests/s, median {delays[-1][0]:5.1f} ms, "
          f"99th percentile {delays[-1][1]:5.1f} ms")  # fmt: skip

stop_server(server, connection)
used = os.times()
used = used.children_user + used.children_system
print(f"{1e3 * used / n_requests:.2f} ms of processor time a request, the start included")

# %%
# Many short texts in one request cost less, as they share one call and one parse of JSON.
server, connection = start_server()
batch = [lines[k % len(lines)] for k in range(256)]
start = perf_counter()
n_calls = max(1, int(20 * seconds))
for _ in range(n_calls):
    tag(connection, batch)
per_request = n_calls * len(batch) / (perf_counter() - start)
print(f"256 sequences in a request: {per_request:.0f} sequences/s")

# %%
# With one client, each request takes the time of a round trip. With more, those that wait are
# labelled together. Clients and server share the processors here.
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(n_clients, rates, "o-")
left.set(xlabel="clients", ylabel="requests per second", xscale="log", ylim=(0, None))
right.plot(n_clients, delays, "o-", label=["median", "99th percentile"])
right.set(xlabel="clients", ylabel="milliseconds", xscale="log", yscale="log")
right.legend()
for axes in (left, right):
    axes.set_xticks(n_clients, n_clients)
    axes.minorticks_off()
plt.show()
stop_server(server, connection)
